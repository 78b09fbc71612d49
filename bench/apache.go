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
	"github.com/binderylog/bindery/internal/freeport"
	"github.com/binderylog/bindery/internal/wire"
)

// apacheBookies are Apache BookKeeper's bookies and a ZooKeeper, as peers are started for production: DbLedgerStorage, a
// synced journal, a heap of 1 GiB and 2 GiB beside it.
type apacheBookies struct {
	b         *benchmark
	zk        *apache.ZooKeeperServer
	bookies   []*program
	ports     []int
	formatted bool
	collects  bool
}

func (a *apacheBookies) name() string { return "Apache BookKeeper " + apache.BookKeeperVersion }
func (a *apacheBookies) data() string { return filepath.Join(a.b.dir, "apache") }
func (a *apacheBookies) metadata() string {
	return "zk+hierarchical://" + a.zk.Addr + "/ledgers"
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
	for _, a := range []apache.Artifact{apache.BookKeeper(apache.BookKeeperVersion), apache.ZooKeeper(), apache.Perf()} {
		if _, err := apache.ClassPath(ctx, a); err != nil {
			return err
		}
	}
	return nil
}

// bookieFlags are what an operator of a bookie of this size gives its virtual machine.
var bookieFlags = []string{"-Xms1g", "-Xmx1g", "-XX:MaxDirectMemorySize=2g"}

func (a *apacheBookies) start(ctx context.Context, bookies int) error {
	if err := os.MkdirAll(a.data(), 0o755); err != nil {
		return err
	}
	if a.zk == nil {
		var err error
		if a.zk, err = startZooKeeper(ctx, filepath.Join(a.data(), "zookeeper")); err != nil {
			return err
		}
	}
	classPath, err := apache.ClassPath(ctx, apache.BookKeeper(apache.BookKeeperVersion))
	if err != nil {
		return err
	}
	more, err := freeport.Some(max(bookies-len(a.ports), 0))
	if err != nil {
		return err
	}
	a.ports = append(a.ports, more...)
	a.bookies = nil
	for i, port := range a.ports {
		conf, err := a.configure(i, port)
		if err != nil {
			return err
		}
		if !a.formatted {
			out, err := own(apache.Java(ctx, []string{classPath}, nil, "org.apache.bookkeeper.bookie.BookieShell", "-conf", conf, "metaformat", "-nonInteractive", "-force")).CombinedOutput()
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
	conf, collects := dir+".conf", ""
	if a.collects {
		collects = collectConf
	}
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
%s`, port, dir, a.metadata(), collects), 0o644)
}

// startZooKeeper starts a ZooKeeper with its files in dir.
func startZooKeeper(ctx context.Context, dir string) (*apache.ZooKeeperServer, error) {
	z, err := apache.NewZooKeeper(ctx, dir, apache.ZooKeeperOptions{})
	if err != nil {
		return nil, err
	}
	return z, z.Start(ctx)
}

// collectConf has Apache's bookie look for garbage every few seconds, in logs of the size that ours keeps.
const collectConf = `gcWaitTime=10000
minorCompactionInterval=11
logSizeLimit=67108864
`

func (a *apacheBookies) collectSoon() { a.collects = true }

func (a *apacheBookies) stop() { stopAll(a.bookies) }
func (a *apacheBookies) kill() { killAll(a.bookies) }

func (a *apacheBookies) remove() {
	a.kill()
	if a.zk != nil {
		a.zk.Kill()
		a.zk = nil
	}
	a.bookies, a.ports, a.formatted, a.collects = nil, nil, false, false
	_ = os.RemoveAll(a.data())
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
