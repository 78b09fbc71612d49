package etcdmeta

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/server/v3/embed"
	"google.golang.org/grpc"

	"github.com/binderylog/bindery/internal/vfs"
)

// EmbeddedOptions configure an etcd member that runs in this process.
type EmbeddedOptions struct {
	Dir string // its data; made if it does not exist

	// ClientURL is where it listens for clients, PeerURL for other members; default "http://127.0.0.1:0", a free port.
	ClientURL string
	PeerURL   string

	// Name and Cluster make it a member of a larger cluster: Cluster lists all members as "name=peer-url,...", the same on
	// each. Empty: a cluster of one.
	Name    string
	Cluster string

	StartTimeout time.Duration // default 60 s; a member of a larger cluster waits for a quorum
	QuotaBytes   int64         // size of its database at which it refuses writes; default 4 GiB
	Logger       *slog.Logger

	// UnsafeNoSync turns off its fsyncs. Tests only: a power cut loses the cluster.
	UnsafeNoSync bool
}

const (
	defaultMemberName   = "bindery"
	defaultEmbeddedURL  = "http://127.0.0.1:0"
	defaultStartTimeout = 60 * time.Second
	defaultQuota        = 4 << 30

	// snapshotEvery and snapshotKeep bound the raft log that a member holds in memory: one entry per write, some hundred
	// bytes each.
	snapshotEvery = 5000
	snapshotKeep  = 1000
	// keepRevisions is how much history is kept for watches that were cut off. Older history is compacted away every few
	// minutes; a watch that finds it gone takes stock anew.
	keepRevisions = "10000"
	// A single member elects itself; with etcd's default it would wait a second for rivals.
	soloTickMs     = 50
	soloElectionMs = 250
	// keepaliveMin is how often clients may ping: they do so every 10 s, and a busy machine lets pings meet.
	keepaliveMin = time.Second
)

// Embedded is a running etcd member.
type Embedded struct {
	etcd   *embed.Etcd
	lock   io.Closer
	client string

	cut context.CancelFunc // ends the streams of clients

	failed chan struct{} // closed when the member stopped by itself
	err    error         // why; set before failed is closed
	stop   chan struct{}
	wg     sync.WaitGroup
	once   sync.Once
}

// StartEmbedded starts an etcd member on Dir and returns once it serves. A directory that another process uses is refused
// with vfs.ErrLocked.
//
// etcd itself ends the process when it finds that its own log cannot be trusted any more (a failed sync of its write-ahead
// log); there is no way to go on safely.
func StartEmbedded(ctx context.Context, o EmbeddedOptions) (*Embedded, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.StartTimeout <= 0 {
		o.StartTimeout = defaultStartTimeout
	}
	if o.Dir == "" {
		return nil, errors.New("embedded etcd: no directory given")
	}
	fs := vfs.OS()
	if err := fs.MkdirAll(o.Dir); err != nil {
		return nil, fmt.Errorf("embedded etcd: %w", err)
	}
	lock, err := fs.Lock(filepath.Join(o.Dir, "LOCK"))
	if err != nil {
		return nil, fmt.Errorf("embedded etcd: directory %s: %w", o.Dir, err)
	}
	m, err := start(ctx, o)
	if err != nil {
		_ = lock.Close()
		return nil, fmt.Errorf("embedded etcd in %s: %w", o.Dir, err)
	}
	m.lock = lock
	return m, nil
}

// startEmbed turns a panic of etcd's start, which is how it reports that its files can not be made, into an error. What it
// had opened until then stays open; its directory stays locked by that.
func startEmbed(cfg *embed.Config) (e *embed.Etcd, err error) {
	defer func() {
		if p := recover(); p != nil {
			e, err = nil, fmt.Errorf("%v: its warning in the log says why; look at the free space and the permissions of the directory", p)
		}
	}()
	return embed.StartEtcd(cfg)
}

func start(ctx context.Context, o EmbeddedOptions) (*Embedded, error) {
	cfg, err := embeddedConfig(o)
	if err != nil {
		return nil, err
	}
	serving, cut := context.WithCancel(context.Background())
	cfg.GRPCAdditionalServerOptions = append(cfg.GRPCAdditionalServerOptions, grpc.ChainStreamInterceptor(endStreams(serving)))
	e, err := startEmbed(cfg)
	if err != nil {
		cut()
		return nil, err
	}
	m := &Embedded{etcd: e, cut: cut, failed: make(chan struct{}), stop: make(chan struct{})}
	timer := time.NewTimer(o.StartTimeout)
	defer timer.Stop()
	select {
	case <-e.Server.ReadyNotify():
	case err = <-e.Err():
	case <-e.Server.StopNotify():
		err = errors.New("it stopped while starting")
	case <-ctx.Done():
		err = ctx.Err()
	case <-timer.C:
		err = fmt.Errorf("not ready within %s: is a majority of %q reachable?", o.StartTimeout, cfg.InitialCluster)
	}
	if err != nil {
		cut()
		e.Close()
		return nil, err
	}
	m.client = e.Clients[0].Addr().String()
	m.wg.Go(m.watch)
	return m, nil
}

func embeddedConfig(o EmbeddedOptions) (*embed.Config, error) {
	cfg := embed.NewConfig()
	cfg.Dir = filepath.Join(o.Dir, "etcd")
	cfg.Name = o.Name
	if cfg.Name == "" {
		cfg.Name = defaultMemberName
	}
	client, err := parseURL(o.ClientURL)
	if err != nil {
		return nil, err
	}
	peer, err := parseURL(o.PeerURL)
	if err != nil {
		return nil, err
	}
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	cfg.InitialCluster = cfg.Name + "=" + peer.String()
	if o.Cluster != "" {
		cfg.InitialCluster = o.Cluster
	}
	if !strings.Contains(cfg.InitialCluster, ",") {
		cfg.TickMs, cfg.ElectionMs = soloTickMs, soloElectionMs
	}
	cfg.PreVote = true
	cfg.GRPCKeepAliveMinTime = keepaliveMin
	cfg.SnapshotCount, cfg.SnapshotCatchUpEntries = snapshotEvery, snapshotKeep
	cfg.MaxSnapFiles, cfg.MaxWalFiles = 2, 2
	cfg.AutoCompactionMode, cfg.AutoCompactionRetention = embed.CompactorModeRevision, keepRevisions
	cfg.QuotaBackendBytes = o.QuotaBytes
	if cfg.QuotaBackendBytes <= 0 {
		cfg.QuotaBackendBytes = defaultQuota
	}
	cfg.UnsafeNoFsync = o.UnsafeNoSync
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zapLogger(o.Logger))
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return cfg, nil
}

func parseURL(s string) (url.URL, error) {
	if s == "" {
		s = defaultEmbeddedURL
	}
	if !strings.Contains(s, "://") {
		s = "http://" + s
	}
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || u.Scheme != "http" {
		return url.URL{}, fmt.Errorf("address %q: must be host:port or http://host:port", s)
	}
	return *u, nil
}

// endStreams returns an interceptor that ends watches and lease streams when ctx does. etcd itself waits for them for
// five seconds and more when it stops, and clients, who reconnect anyway, keep them open for ever.
func endStreams(ctx context.Context) grpc.StreamServerInterceptor {
	return func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		sctx, cancel := context.WithCancel(stream.Context())
		defer cancel()
		defer context.AfterFunc(ctx, cancel)()
		err := handler(srv, &cuttableStream{stream, sctx})
		if ctx.Err() != nil {
			return rpctypes.ErrGRPCStopped // which tells clients to reconnect
		}
		return err
	}
}

// cuttableStream is a stream with another context.
type cuttableStream struct {
	grpc.ServerStream
	ctx context.Context
}

// Context implements grpc.ServerStream.
func (s *cuttableStream) Context() context.Context { return s.ctx }

// watch waits for the member to stop by itself.
func (m *Embedded) watch() {
	select {
	case err := <-m.etcd.Err():
		m.err = err
	case <-m.etcd.Server.StopNotify():
		m.err = errors.New("embedded etcd stopped")
	case <-m.stop:
		return
	}
	close(m.failed)
}

// Endpoints returns where clients reach the member.
func (m *Embedded) Endpoints() []string { return []string{m.client} }

// Failed is closed when the member stopped without being told to; Err then says why.
func (m *Embedded) Failed() <-chan struct{} { return m.failed }

// Err returns why the member stopped by itself, or nil.
func (m *Embedded) Err() error {
	select {
	case <-m.failed:
		return m.err
	default:
		return nil
	}
}

// Close stops the member and returns when its files are closed. Nothing is lost by killing it instead.
func (m *Embedded) Close() error {
	var err error
	m.once.Do(func() {
		close(m.stop)
		m.wg.Wait()
		m.cut()
		m.etcd.Close()
		err = m.lock.Close()
	})
	return err
}
