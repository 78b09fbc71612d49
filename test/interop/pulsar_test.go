//go:build interop

package interop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/freeport"
	"github.com/binderylog/bindery/internal/jvmtest"
	"github.com/binderylog/bindery/ledgerclient"
)

const (
	perfVersion = "4.0.8" // of Pulsar's load tool, which is not served as 4.0.7

	// messagesPerLedger is how soon the broker begins a new ledger.
	messagesPerLedger = 300
	messageSize       = 1000
	messagesPerSecond = 200 // of a load

	topic = "persistent://public/default/interop"
)

// TestPulsar (f): an unmodified broker of Pulsar's keeps its topics on our bookies alone.
func TestPulsar(t *testing.T) {
	for _, s := range sides {
		if testing.Short() && s.name != "zookeeper" {
			continue
		}
		t.Run(s.name, func(t *testing.T) { pulsar(t, s.at(t), s.name) })
	}
}

// pulsar is the life of a topic: each part goes on from where the one before it ended.
func pulsar(t *testing.T, at metadataStore, name string) {
	program := buildPulsarClient(t)
	f := startFleet(t, at, "pulsar-"+name, ours, ours, ours, ours, ours)
	b := startBroker(t, f)
	p := drive(t, "pulsar-client-go-"+name, exec.Command(program))
	must(t, p, "connect", b.service)
	for i, part := range []struct {
		name string
		run  func(t *testing.T, f *fleet, b *broker, p *driven)
	}{
		{"produce and consume, rollover, deletion", rollover},
		{"broker killed under load", brokerKilled},
		{"bookie killed and replaced under load", bookieReplaced},
		{"pulsar-perf", pulsarPerf},
		{"garbage collection", collected},
	} {
		if testing.Short() && i > 2 {
			break
		}
		if !t.Run(part.name, func(t *testing.T) {
			defer func() {
				lines = append(lines, fmt.Sprintf("%-4s  Pulsar %s on bindery in %s: %s", outcomeOf(t), pulsarVersion, name, part.name))
			}()
			part.run(t, f, b, p)
		}) {
			t.Logf("the broker said:\n%s", b.tail())
			return
		}
	}
}

// buildPulsarClient builds the program that drives Pulsar's Go client. It is a module of its own, so that the product does not
// depend on what that client needs.
func buildPulsarClient(t *testing.T) string {
	program := filepath.Join(work, "pulsar-client-go")
	if _, err := os.Stat(program); err == nil {
		return program
	}
	fmt.Fprintln(os.Stderr, "interop: building a program with pulsar-client-go; the first time this takes minutes")
	cmd := exec.Command("go", "build", "-o", program, ".")
	cmd.Dir = "pulsar"
	out, err := cmd.CombinedOutput()
	if err != nil && strings.Contains(string(out), "dial tcp") {
		t.Skipf("pulsar-client-go cannot be had: make the Go module proxy reachable: %s", out)
	}
	require.NoError(t, err, "%s", out)
	return program
}

// must runs a command of a driven program.
func must(t *testing.T, p *driven, args ...any) []string {
	t.Helper()
	v, err := p.do(args...)
	require.NoError(t, err)
	return v
}

// broker is a broker of Pulsar's that can be killed and started again.
type broker struct {
	*process
	t       *testing.T
	conf    string
	service string // URL of clients
	admin   string // base URL of its admin server

	deleted map[string]int64 // ledgers that it deleted, by bookie
}

// startBroker makes a Pulsar cluster on a fleet and starts its broker.
func startBroker(t *testing.T, f *fleet) *broker {
	service, web := freeport.Test(t), freeport.Test(t)
	b := &broker{
		t: t, deleted: map[string]int64{}, conf: filepath.Join(work, f.name+"-broker.conf"),
		service: fmt.Sprintf("pulsar://127.0.0.1:%d", service), admin: fmt.Sprintf("http://127.0.0.1:%d", web),
	}
	// f.uri is zk+hierarchical://HOST/ROOT, metadata-store:etcd:URL or metadata-store:zk:HOST/CHROOT.
	store, pulsars := strings.CutPrefix(f.uri, "metadata-store:")
	setup := f.uri
	if !pulsars {
		_, rest, _ := strings.Cut(f.uri, "://")
		host, _, _ := strings.Cut(rest, "/")
		store = "zk:" + host
	} else if at, onZooKeeper := strings.CutPrefix(store, "zk:"); onZooKeeper {
		setup = "zk+hierarchical://" + at + "/ledgers" // Pulsar's set-up reads no other form of it on ZooKeeper
	}
	out, err := jvm("256m", []string{pulsarJars(t)}, "org.apache.pulsar.PulsarClusterMetadataSetup", "--cluster", "interop",
		"--metadata-store", store, "--configuration-metadata-store", store, "--existing-bk-metadata-service-uri", setup,
		"--web-service-url", b.admin, "--broker-service-url", b.service).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.NoError(t, os.WriteFile(b.conf, fmt.Appendf(nil, `
clusterName=interop
metadataStoreUrl=%s
configurationMetadataStoreUrl=%s
bookkeeperMetadataServiceUri=%s
brokerServicePort=%d
webServicePort=%d
bindAddress=127.0.0.1
advertisedAddress=127.0.0.1
metadataStoreSessionTimeoutMillis=6000
managedLedgerDefaultEnsembleSize=3
managedLedgerDefaultWriteQuorum=3
managedLedgerDefaultAckQuorum=2
managedLedgerMaxEntriesPerLedger=%d
managedLedgerMinLedgerRolloverTimeMinutes=0
managedLedgerCacheSizeMB=32
managedLedgerDefaultMarkDeleteRateLimit=100
retentionCheckIntervalInSeconds=3
loadBalancerEnabled=false
topicLevelPoliciesEnabled=false
systemTopicEnabled=false
numHttpServerThreads=8
`, store, store, f.uri, service, web, messagesPerLedger), 0o644))
	b.start()
	return b
}

// start starts the broker, again if it had been killed, and waits until it serves.
func (b *broker) start() {
	b.t.Helper()
	b.process = start(b.t, filepath.Base(b.conf)+".out", jvm("512m", []string{pulsarJars(b.t)}, "org.apache.pulsar.PulsarBrokerStarter", "-c", b.conf), work)
	_, err := await(1, func() (int64, error) {
		var ready bool
		select {
		case <-b.done:
			return 0, errors.New("it has ended")
		default:
			_, err := b.get("/admin/v2/namespaces/public/default")
			ready = err == nil
		}
		return map[bool]int64{true: 1}[ready], nil
	}, 5*time.Minute)
	require.NoError(b.t, err, "the broker does not start:\n%s", b.tail())
}

// get asks the broker's admin server.
func (b *broker) get(path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, b.admin+path, nil)
	if err != nil {
		return nil, err
	}
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := c.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %.200s", path, resp.Status, body)
	}
	return body, err
}

// ledgers returns the ledgers of the topic, the one that is written last.
func (b *broker) ledgers(t *testing.T) (ids []int64) {
	t.Helper()
	body, err := b.get("/admin/v2/persistent/public/default/interop/internalStats")
	require.NoError(t, err)
	var stats struct {
		Ledgers []struct {
			ID int64 `json:"ledgerId"`
		} `json:"ledgers"`
	}
	require.NoError(t, json.Unmarshal(body, &stats))
	for _, l := range stats.Ledgers {
		ids = append(ids, l.ID)
	}
	require.NotEmpty(t, ids)
	return ids
}

// consume reads everything from message first on.
func consume(t *testing.T, p *driven, subscription string, first int64) (n int64) {
	t.Helper()
	v := must(t, p, "consume", topic, subscription, first)
	n, again, err := pair(v)
	require.NoError(t, err)
	t.Logf("%d messages consumed from %d on, %d came again", n, first, again)
	return n
}

// rollover: what was produced is consumed, spread over several ledgers, which go once they are not needed.
func rollover(t *testing.T, f *fleet, b *broker, p *driven) {
	const count = 5*messagesPerLedger + 10
	must(t, p, "subscribe", topic, "keep")
	last := must(t, p, "produce", topic, count, messageSize)
	require.Equal(t, strconv.Itoa(count-1), last[0])
	before := b.ledgers(t)
	// A slow broker takes what is under way, up to 500 messages, into a ledger that is full.
	require.Greater(t, len(before), 1, "the broker did not begin new ledgers")
	for _, id := range before {
		m, err := f.client.Metadata(t.Context(), idOf(id))
		require.NoError(t, err)
		require.Equal(t, "pulsar", string(m.Custom["application"]))
		if id != before[len(before)-1] {
			for _, holder := range m.Fragments[0].Bookies {
				b.deleted[string(holder)]++
			}
		}
	}
	require.EqualValues(t, count, consume(t, p, "keep", 0))
	_, err := await(1, func() (int64, error) {
		left := b.ledgers(t)
		return map[bool]int64{true: 1}[len(left) == 1], nil
	}, time.Minute)
	require.NoError(t, err, "the broker keeps the ledgers %v", b.ledgers(t))
	for _, id := range before[:len(before)-1] {
		_, err := f.client.Metadata(t.Context(), idOf(id))
		require.ErrorIs(t, err, ledgerclient.ErrNoSuchLedger, "ledger %d", id)
	}
	for _, m := range f.bookies { // a pass deletes only what has been away for a minute
		runOurs(t, "gc", "run", "--server", m.http)
	}
}

// collected: the bookies have thrown away what the broker had deleted.
func collected(t *testing.T, f *fleet, b *broker, _ *driven) {
	for _, m := range f.bookies {
		_, err := await(b.deleted[m.id], func() (int64, error) {
			var status struct {
				Summary struct {
					Deleted int64 `json:"ledgers_deleted"`
				} `json:"summary"`
			}
			err := json.Unmarshal(runOurs(t, "gc", "status", "--output", "json", "--server", m.http), &status)
			return status.Summary.Deleted, err
		}, 3*time.Minute)
		require.NoError(t, err, "%s keeps copies of ledgers that are deleted", m.id)
	}
}

// ackedOf returns how many messages of the topic the broker has acknowledged.
func ackedOf(t *testing.T, p *driven) int64 {
	t.Helper()
	n, err := strconv.ParseInt(must(t, p, "acked", topic)[0], 10, 64)
	require.NoError(t, err)
	return n
}

// progress waits until so many more messages are acknowledged.
func progress(t *testing.T, p *driven, more int64) {
	t.Helper()
	want := ackedOf(t, p) + more
	_, err := await(want, func() (int64, error) {
		v, err := p.do("acked", topic)
		if err != nil {
			return 0, err
		}
		return strconv.ParseInt(v[0], 10, 64)
	}, 3*time.Minute)
	require.NoError(t, err)
}

// underLoad produces while fn runs, and consumes everything afterwards.
func underLoad(t *testing.T, p *driven, fn func()) {
	t.Helper()
	first := ackedOf(t, p)
	must(t, p, "start", topic, messagesPerSecond, messageSize)
	progress(t, p, messagesPerSecond)
	fn()
	last, err := strconv.ParseInt(must(t, p, "stop", topic)[0], 10, 64)
	require.NoError(t, err)
	require.Equal(t, last+1, ackedOf(t, p), "every message was acknowledged")
	require.Equal(t, last+1-first, consume(t, p, "keep", first))
}

// brokerKilled: a broker that dies leaves open ledgers, which its successor recovers.
func brokerKilled(t *testing.T, f *fleet, b *broker, p *driven) {
	var open int64
	underLoad(t, p, func() {
		ids := b.ledgers(t)
		open = ids[len(ids)-1]
		b.kill()
		b.start()
		progress(t, p, messagesPerSecond)
	})
	m, err := f.client.Metadata(t.Context(), idOf(open))
	if !errors.Is(err, ledgerclient.ErrNoSuchLedger) { // consumed and gone already
		require.NoError(t, err)
		require.Equal(t, ledgerclient.StateClosed, m.State, "the new broker has sealed the old one's ledger")
	}
}

// bookieReplaced: a bookie dies under the broker, another one takes its place, and the dead one is retired.
func bookieReplaced(t *testing.T, f *fleet, b *broker, p *driven) {
	underLoad(t, p, func() {
		ids := b.ledgers(t)
		m, err := f.client.Metadata(t.Context(), idOf(ids[len(ids)-1]))
		require.NoError(t, err)
		dead := f.of(string(m.Fragments[len(m.Fragments)-1].Bookies[0]))
		require.NotNil(t, dead)
		dead.kill()
		progress(t, p, 2*messagesPerSecond)
		f.gone(t, dead)
		f.forget(dead)
		f.add(ours)
		f.ready()
		if testing.Short() { // what follows waits half a minute for the writers of idle ledgers
			progress(t, p, messagesPerSecond)
			return
		}
		f.bindery(t, "node", "decommission", dead.id)
		progress(t, p, 2*messagesPerSecond)
		for _, id := range b.ledgers(t) {
			m, err := f.client.Metadata(t.Context(), idOf(id))
			if errors.Is(err, ledgerclient.ErrNoSuchLedger) {
				continue
			}
			require.NoError(t, err)
			require.False(t, m.Names(bookieOf(dead.id)), "ledger %d", id)
		}
	})
}

// pulsarPerf: Pulsar's own load tool produces batches and consumes them.
func pulsarPerf(t *testing.T, _ *fleet, b *broker, _ *driven) {
	const messages = 50_000
	conf := filepath.Join(t.TempDir(), "client.conf")
	require.NoError(t, os.WriteFile(conf, fmt.Appendf(nil, "webServiceUrl=%s\nbrokerServiceUrl=%s\n", b.admin, b.service), 0o644))
	perf := func(args ...string) *exec.Cmd {
		classPath := []string{jvmtest.Jar(t, "pulsar", "pulsar-testclient", perfVersion), pulsarJars(t)}
		return jvm("512m", classPath, "org.apache.pulsar.testclient.PulsarPerfTestTool", append([]string{conf}, args...)...)
	}
	name := "persistent://public/default/perf"
	consumer := start(t, "pulsar-perf-consume", perf("consume", "-ss", "perf", "-sp", "Earliest", "-m", strconv.Itoa(messages), name), work)
	out, err := perf("produce", "-m", strconv.Itoa(messages), "-r", "5000", "-s", strconv.Itoa(messageSize), name).CombinedOutput()
	require.NoError(t, err, "%s", out)
	select {
	case <-consumer.done:
	case <-time.After(2 * time.Minute):
		t.Fatalf("pulsar-perf does not consume what was produced:\n%s", consumer.tail())
	}
	require.True(t, consumer.cmd.ProcessState.Success(), "%s", consumer.tail())
	body, err := b.get("/admin/v2/persistent/public/default/perf/stats")
	require.NoError(t, err)
	var stats struct {
		In int64 `json:"msgInCounter"`
	}
	require.NoError(t, json.Unmarshal(body, &stats))
	require.GreaterOrEqual(t, stats.In, int64(messages))
}
