package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/binderylog/bindery/internal/apache"
	"github.com/binderylog/bindery/internal/wire"
)

// apacheBookies are Apache BookKeeper's bookies and a ZooKeeper, as peers are started for production: DbLedgerStorage, a
// synced journal, a heap of 1 GiB and 2 GiB beside it.
type apacheBookies struct {
	b         *benchmark
	zk        *program
	zkPort    int
	bookies   []*program
	ports     []int
	formatted bool
}

func (a *apacheBookies) name() string { return "Apache BookKeeper " + apache.BookKeeperVersion }
func (a *apacheBookies) data() string { return filepath.Join(a.b.dir, "apache") }
func (a *apacheBookies) metadata() string {
	return fmt.Sprintf("zk+hierarchical://127.0.0.1:%d/ledgers", a.zkPort)
}

func (a *apacheBookies) pids() (pids []int) {
	for _, p := range a.bookies {
		pids = append(pids, p.cmd.Process.Pid)
	}
	return pids
}

func (a *apacheBookies) addresses() (list []string) {
	for _, p := range a.ports {
		list = append(list, fmt.Sprintf("127.0.0.1:%d", p))
	}
	return list
}

// apacheHere has everything fetched before anything is measured.
func apacheHere(ctx context.Context) error {
	_, err := apache.ClassPath(ctx, apache.BookKeeper(apache.BookKeeperVersion))
	if err == nil {
		_, err = apache.ClassPath(ctx, apache.ZooKeeper())
	}
	return err
}

// bookieFlags are what an operator of a bookie of this size gives its virtual machine.
var bookieFlags = []string{"-Xms1g", "-Xmx1g", "-XX:MaxDirectMemorySize=2g"}

func (a *apacheBookies) start(ctx context.Context, bookies int) error {
	if err := os.MkdirAll(a.data(), 0o755); err != nil {
		return err
	}
	if err := a.startZooKeeper(ctx); err != nil {
		return err
	}
	classPath, err := apache.ClassPath(ctx, apache.BookKeeper(apache.BookKeeperVersion))
	if err != nil {
		return err
	}
	for len(a.ports) < bookies {
		port, err := freePort(ctx)
		if err != nil {
			return err
		}
		a.ports = append(a.ports, port)
	}
	a.bookies = nil
	for i, port := range a.ports {
		conf, err := a.configure(i, port)
		if err != nil {
			return err
		}
		if !a.formatted {
			out, err := apache.Java(ctx, []string{classPath}, nil, "org.apache.bookkeeper.bookie.BookieShell", "-conf", conf, "metaformat", "-nonInteractive", "-force").CombinedOutput()
			if err != nil {
				return fmt.Errorf("format Apache's cluster: %w: %s", err, out)
			}
			a.formatted = true
		}
		p, err := launch(apache.Java(context.WithoutCancel(ctx), []string{classPath}, bookieFlags, "org.apache.bookkeeper.server.Main", "-c", conf), conf+".log")
		if err != nil {
			return err
		}
		a.bookies = append(a.bookies, p)
	}
	for i, p := range a.bookies {
		if err := p.await(ctx, func() bool { return serves(ctx, a.addresses()[i]) }); err != nil {
			return err
		}
	}
	return nil
}

// configure writes a bookie's configuration and returns its name.
func (a *apacheBookies) configure(i, port int) (string, error) {
	dir := filepath.Join(a.data(), "bookie-"+strconv.Itoa(i+1))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	conf := dir + ".conf"
	return conf, os.WriteFile(conf, fmt.Appendf(nil, `bookiePort=%d
advertisedAddress=127.0.0.1
allowLoopback=true
journalDirectory=%[2]s/journal
ledgerDirectories=%[2]s/ledgers
indexDirectories=%[2]s/ledgers
metadataServiceUri=%s
ledgerStorageClass=org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage
diskUsageThreshold=0.99
diskUsageWarnThreshold=0.98
`, port, dir, a.metadata()), 0o644)
}

func (a *apacheBookies) startZooKeeper(ctx context.Context) error {
	if a.zk != nil {
		return nil
	}
	classPath, err := apache.ClassPath(ctx, apache.ZooKeeper())
	if err != nil {
		return err
	}
	if a.zkPort, err = freePort(ctx); err != nil {
		return err
	}
	dir := filepath.Join(a.data(), "zookeeper")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	conf := filepath.Join(dir, "zoo.cfg")
	if err := os.WriteFile(conf, fmt.Appendf(nil, "tickTime=2000\ndataDir=%s/data\nclientPort=%d\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\nmaxClientCnxns=0\n4lw.commands.whitelist=*\n",
		dir, a.zkPort), 0o644); err != nil {
		return err
	}
	if a.zk, err = launch(apache.Java(context.WithoutCancel(ctx), []string{classPath}, []string{"-Xmx512m"}, "org.apache.zookeeper.server.quorum.QuorumPeerMain", conf), filepath.Join(dir, "out.log")); err != nil {
		return err
	}
	address := fmt.Sprintf("127.0.0.1:%d", a.zkPort)
	return a.zk.await(ctx, func() bool {
		c, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", address)
		if err != nil {
			return false
		}
		defer c.Close() //nolint:errcheck // only asked
		_ = c.SetDeadline(time.Now().Add(time.Second))
		_, err = c.Write([]byte("srvr"))
		buf := make([]byte, 1)
		if err == nil {
			_, err = c.Read(buf)
		}
		return err == nil
	})
}

func (a *apacheBookies) stop() { stopAll(a.bookies) }
func (a *apacheBookies) kill() { killAll(a.bookies) }

func (a *apacheBookies) remove() {
	a.kill()
	if a.zk != nil {
		killAll([]*program{a.zk})
		a.zk = nil
	}
	a.bookies, a.ports, a.formatted = nil, nil, false
	_ = os.RemoveAll(a.data())
}

func freePort(ctx context.Context) (int, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}

// diskSpace are the flags of a request for both figures of a bookie's disks.
const diskSpace = 3

// serves asks a bookie for its disk space: its port takes connections some seconds before it answers.
func serves(ctx context.Context, address string) bool {
	c, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", address)
	if err != nil {
		return false
	}
	defer c.Close() //nolint:errcheck // only asked
	_ = c.SetDeadline(time.Now().Add(2 * time.Second))
	ask, err := wire.AppendRequest(nil, &wire.Request{Proto: wire.V3, Op: wire.OpBookieInfo, TxnID: 1, Requested: diskSpace})
	if err == nil {
		_, err = c.Write(ask)
	}
	if err != nil {
		return false
	}
	var buf []byte
	for chunk := make([]byte, 4<<10); ; {
		packet, _, err := wire.Frame(buf, len(chunk))
		if err == nil {
			var r wire.Response
			return wire.DecodeResponse(wire.V3, packet, &r) == nil && r.Code == wire.OK
		}
		if !errors.Is(err, wire.ErrShort) {
			return false
		}
		n, err := c.Read(chunk)
		if err != nil {
			return false
		}
		buf = append(buf, chunk[:n]...)
	}
}
