package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/binderylog/bindery/internal/apache"
	"github.com/binderylog/bindery/internal/freeport"
)

// Apache's own load generator is a second opinion: the Java client and its DistributedLog, which puts records together into
// entries of up to 512 KiB, or every 2 ms. It finds bookies by ZooKeeper only, so ours runs with that for it.

const (
	perfStep    = "perf: Apache's own load generator"
	perfRecord  = 1024
	perfTimeout = 10 * time.Minute // until a run has told enough, on a busy machine
	perfRamp    = 1                // its intervals of 10 s that are not counted, from the first with records on
	perfCounted = 2                // and that are
	perfSaid    = 10               // lines of it that are shown when it fails
	perfTries   = 2                // it ends by itself when a bookie is slow for long enough
)

// perfLoads are its loads. Of the 200 MB that it would have outstanding, a disk of 60 MB/s takes so long that its client gives up.
func perfLoads() []load {
	return []load{
		{name: "perf: Apache's generator, 4 logs, as fast as it goes", args: []string{"-l", "4", "-t", "2", "-mob", "16"}},
		{name: "perf: Apache's generator, 4 logs, 20000 records/s", args: []string{"-l", "4", "-t", "2", "-mob", "16", "-r", strconv.Itoa(20000 * perfRecord)}, open: true},
	}
}

// perf drives a peer with Apache's generator.
func (b *benchmark) perf(ctx context.Context, p peer) error {
	if _, ok := p.(*ours); ok {
		p = &oursInZooKeeper{b: b}
		defer p.remove()
	}
	if err := p.start(ctx, 1); err != nil {
		return err
	}
	g := &generator{b: b, p: p, conf: filepath.Join(b.dir, "perf-log4j2.xml")}
	if err := g.prepare(ctx); err != nil {
		return err
	}
	for _, l := range perfLoads() {
		f, err := g.write(ctx, l)
		for try := 1; err != nil && try < perfTries && ctx.Err() == nil; try++ {
			b.say("%s on %s, once more: %v", l.name, p.name(), err)
			f, err = g.write(ctx, l)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", l.name, err)
		}
		b.keep(l.name, p, f)
	}
	return nil
}

// generator is Apache's generator for one cluster.
type generator struct {
	b         *benchmark
	p         peer
	conf      string // of its logging
	classPath string
	namespace string
}

// perfLogging has it print to its standard output, without what it knows about where.
const perfLogging = `<Configuration><Appenders><Console name="out"><PatternLayout pattern="%m%n%throwable"/></Console></Appenders>
<Loggers><Root level="info"><AppenderRef ref="out"/></Root></Loggers></Configuration>
`

// prepare fetches it and makes a namespace for its logs.
func (g *generator) prepare(ctx context.Context) (err error) {
	if g.classPath, err = apache.ClassPath(ctx, apache.Perf()); err != nil {
		return err
	}
	if err := os.WriteFile(g.conf, []byte(perfLogging), 0o644); err != nil {
		return err
	}
	servers, ledgers, ok := strings.Cut(strings.TrimPrefix(g.p.metadata(), "zk+hierarchical://"), "/")
	if !ok {
		return fmt.Errorf("%s is no ZooKeeper", g.p.metadata())
	}
	g.namespace = "distributedlog://" + servers + "/perf"
	out, err := g.java(ctx, "org.apache.distributedlog.tools.Tool", "org.apache.distributedlog.admin.DistributedLogAdmin", "bind", "-l", "/"+ledgers, "-s", servers, "-c", g.namespace).CombinedOutput()
	if err == nil && !strings.Contains(string(out), "Created binding") {
		err = errors.New("it was not bound")
	}
	if err != nil {
		return fmt.Errorf("make a namespace for Apache's generator: %w: %s", err, out[max(0, len(out)-outputTail):])
	}
	return nil
}

func (g *generator) java(ctx context.Context, main string, args ...string) *exec.Cmd {
	return own(apache.Java(ctx, []string{g.classPath}, []string{"-Xmx1g", "-Dlog4j2.configurationFile=" + g.conf}, main, args...))
}

// write runs one load until enough of its intervals have been told.
func (g *generator) write(ctx context.Context, l load) (figure, error) {
	limit, cancel := context.WithTimeout(ctx, perfTimeout)
	defer cancel()
	args := append([]string{"--service-uri", g.namespace, "dlog", "write", "-rs", strconv.Itoa(perfRecord), "-ln", strings.ReplaceAll(strings.Join(l.args, ""), "-", "") + "-%06d"}, l.args...)
	cmd := g.java(limit, "org.apache.bookkeeper.tools.perf.BKPerf", args...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return figure{}, err
	}
	if err := cmd.Start(); err != nil {
		return figure{}, err
	}
	var list []figure
	var said []string // last
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for len(list) < perfRamp+perfCounted && lines.Scan() {
		line := lines.Text()
		if f, ok := perfLine(line); ok && f.PerSecond > 0 {
			list = append(list, f)
		}
		said = append(said[max(0, len(said)-perfSaid):], line[:min(len(line), outputTail)])
	}
	cancel() // it would go on for ever
	_ = cmd.Wait()
	if ctx.Err() != nil {
		return figure{}, context.Cause(ctx)
	}
	if len(list) < perfRamp+perfCounted {
		return figure{}, fmt.Errorf("the generator of Apache told of %d intervals with records, want %d; the last that it said:\n%s", len(list), perfRamp+perfCounted, strings.Join(said, "\n"))
	}
	return meanFigure(list[perfRamp:]), nil
}

// perfPattern is what it prints of an interval.
var perfPattern = regexp.MustCompile(`Throughput written : *([\d.]+) *records/s --- *([\d.]+) MB/s --- Latency: mean: *([\d.]+) ms - med: *([\d.]+) - 95pct: *([\d.]+) - 99pct: *([\d.]+) - 99.9pct: *([\d.]+)`)

// perfLine reads such a line.
func perfLine(line string) (f figure, ok bool) {
	m := perfPattern.FindStringSubmatch(line)
	if m == nil {
		return f, false
	}
	var n [7]float64
	for i := range n {
		var err error
		if n[i], err = strconv.ParseFloat(m[i+1], 64); err != nil {
			return f, false
		}
	}
	f = figure{PerSecond: n[0], MB: n[0] * perfRecord / 1e6, Latency: map[string]float64{"p50": 1e3 * n[3], "p99": 1e3 * n[5], "p99.9": 1e3 * n[6]}}
	return f, true
}

// meanFigure is the mean of intervals of equal length. Of percentiles there is no better one without their histograms.
func meanFigure(list []figure) figure {
	sum := figure{Latency: map[string]float64{}}
	n := float64(len(list))
	for _, f := range list {
		sum.PerSecond += f.PerSecond / n
		sum.MB += f.MB / n
		for q, us := range f.Latency {
			sum.Latency[q] += us / n
		}
	}
	return sum
}

// oursInZooKeeper is one bookie of ours whose metadata is in a ZooKeeper.
type oursInZooKeeper struct {
	b       *benchmark
	zk      *apache.ZooKeeperServer
	p       *program
	address string
}

func (o *oursInZooKeeper) name() string        { return (&ours{}).name() }
func (o *oursInZooKeeper) data() string        { return filepath.Join(o.b.dir, "bindery-zookeeper") }
func (o *oursInZooKeeper) pids() []int         { return []int{o.p.cmd.Process.Pid} }
func (o *oursInZooKeeper) addresses() []string { return []string{o.address} }
func (o *oursInZooKeeper) metadata() string    { return "zk+hierarchical://" + o.zk.Addr + "/ledgers" }
func (o *oursInZooKeeper) collectSoon()        {}
func (o *oursInZooKeeper) stop()               { stopAll([]*program{o.p}) }
func (o *oursInZooKeeper) kill()               { killAll([]*program{o.p}) }

func (o *oursInZooKeeper) remove() {
	o.kill()
	if o.zk != nil {
		o.zk.Kill()
	}
	o.p, o.zk = nil, nil
	_ = os.RemoveAll(o.data())
}

func (o *oursInZooKeeper) start(ctx context.Context, _ int) (err error) {
	if o.zk, err = startZooKeeper(ctx, filepath.Join(o.data(), "zookeeper")); err != nil {
		return err
	}
	ports, err := freeport.Some(2)
	if err != nil {
		return err
	}
	o.address = freeport.Address(ports[0])
	for _, dir := range []string{"journal", "ledgers"} {
		if err := os.MkdirAll(filepath.Join(o.data(), dir), 0o755); err != nil {
			return err
		}
	}
	conf := filepath.Join(o.data(), "bindery.toml")
	if err := os.WriteFile(conf, fmt.Appendf(nil, `[bookie]
id = %[1]q
listen = %[1]q
advertised_address = "127.0.0.1"
[metadata]
uri = %[2]q
[storage]
journal_dirs = [%[3]q]
ledger_dirs = [%[4]q]
memory = %[5]q
[journal]
segment_size = "64MiB"
[expert]
entry_log_size = "64MiB"
[http]
listen = "127.0.0.1:%[6]d"
[disk]
allow_shared = true
`, o.address, o.metadata(), filepath.Join(o.data(), "journal"), filepath.Join(o.data(), "ledgers"), o.b.memory, ports[1]), 0o644); err != nil {
		return err
	}
	for _, args := range [][]string{{"cluster", "init", "--metadata", o.metadata()}, {"node", "init", "--config", conf}} {
		if _, err := o.b.command(ctx, nil, "bindery", args...); err != nil {
			return err
		}
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), filepath.Join(o.b.bin, "bindery"), "run", "--config", conf)
	if o.p, err = launch(cmd, filepath.Join(o.data(), "bindery.log")); err != nil {
		return err
	}
	return o.p.await(ctx, func() bool { return serves(ctx, o.address) })
}
