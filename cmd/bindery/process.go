package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/binderylog/bindery/bookie"
	"github.com/binderylog/bindery/internal/admin"
	"github.com/binderylog/bindery/internal/config"
	"github.com/binderylog/bindery/internal/metadata"
	"github.com/binderylog/bindery/internal/metadata/driver"
	"github.com/binderylog/bindery/internal/metadata/etcdmeta"
	"github.com/binderylog/bindery/internal/vfs"
)

// process is everything that `run` or `standalone` runs in one process. It is started in the order metadata member,
// admin server, metadata client, bookies, and stopped in the reverse one; the admin server outlives the bookies so that
// a stop can be watched.
type process struct {
	config *config.Loaded
	plan   plan
	log    *slog.Logger
	etcd   *slog.Logger // of the metadata member and its client
	muted  *atomic.Bool // silences it

	level         *slog.LevelVar
	resolve       func(*config.Loaded) config.Effective // what "auto" comes to
	live          atomic.Pointer[config.Loaded]         // the configuration in force: config, or what a reload made of it
	reloading     sync.Mutex                            // serialises reload; held while bookies are changed
	hangupReloads bool                                  // SIGHUP means reload; otherwise it is a clean stop

	up      atomic.Bool // everything serves
	admin   *admin.Server
	member  *etcdmeta.Embedded
	store   metadata.Store
	bookies []*bookie.Bookie

	viewsMu sync.Mutex
	views   *metadata.Views // guarded by viewsMu; nil until loadViews. Shared: what they know of locks concerns the whole process

	recovery atomic.Pointer[recovery]  // nil: it takes no part in auto-recovery
	offload  atomic.Pointer[offloader] // nil: it has not the role offload
}

// plan is what one process is to run, worked out from flags and configuration.
type plan struct {
	bookies     []bookiePlan
	member      *etcdmeta.EmbeddedOptions // nil = no metadata member
	uri         string
	initCluster bool // make the cluster if there is none (standalone)
	sessionTTL  time.Duration
	httpListen  string
	recovery    bool          // take part in auto-recovery
	offload     bool          // the role offload
	drain       time.Duration // how long a stop lets clients move their ledgers away
}

// bookiePlan is one bookie of the process.
type bookiePlan struct {
	id          string
	listen      string
	advertised  string
	admin       string // what is published as the address of the admin server
	domain      string // overrides bookie.domain
	journalDirs []string
	ledgerDirs  []string
	indexDirs   []string
	prepare     bool
	readOnly    bool
}

func newProcess(l *config.Loaded, stderr io.Writer) *process {
	p := &process{config: l, level: &slog.LevelVar{}}
	p.live.Store(l)
	p.level.Set(logLevel(l.Log.Level))
	p.log = newLogger(stderr, p.level)
	p.etcd, p.muted = newDemoted(p.log)
	for _, w := range l.Warnings {
		p.log.Warn("configuration", "problem", w.String())
	}
	return p
}

// stopTimeout bounds how long a stop waits for clients after the drain; what has to be on disk is written whatever it takes.
const stopTimeout = 10 * time.Second

// drainMax bounds --drain-seconds.
const drainMax = time.Hour

// start starts everything. When it fails, what had started has been stopped and the error carries the exit code.
func (p *process) start(ctx context.Context, e config.Effective) (err error) {
	defer func() {
		if err != nil {
			if serr := p.stop(context.WithoutCancel(ctx)); serr != nil {
				p.log.Warn("after the failed start", "error", serr)
			}
		}
	}()
	token, err := adminToken(p.config.HTTP.AdminTokenFile)
	if err != nil {
		return exit(bookie.ExitConfig, err)
	}
	if err := p.checkDisks(); err != nil {
		return err
	}
	if p.plan.httpListen != "" {
		o := admin.Options{Config: configView{p}, Reload: p.reloadForAdmin, Cluster: (*clusterView)(p), Offload: (*offloadView)(p), Process: recoveryMetrics{p: p}, Token: token, Version: version, Logger: p.log}
		for _, b := range p.plan.bookies {
			o.Bookies = append(o.Bookies, admin.Bookie{State: notYet(b.id)})
		}
		if p.admin, err = admin.Listen(ctx, p.plan.httpListen, o); err != nil {
			if running := p.alreadyRunning(); running != nil && errors.Is(err, syscall.EADDRINUSE) {
				return running
			}
			return exitIO(fmt.Errorf("http.listen: %w", portHint(err)))
		}
	}
	if p.plan.member != nil {
		if err := p.startMember(ctx); err != nil {
			return err
		}
	}
	p.store, err = p.openStore(ctx)
	if err != nil {
		return err
	}
	if err := p.startBookies(ctx, e); err != nil {
		return err
	}
	if err := p.startRecovery(ctx); err != nil {
		return err
	}
	if err := p.startOffload(ctx); err != nil {
		return err
	}
	p.up.Store(true)
	return nil
}

// alreadyRunning says whether another process has one of the bookies: then that, and not the port that it has too, is why
// this one can not start.
func (p *process) alreadyRunning() error {
	for _, b := range p.plan.bookies {
		id := cmp.Or(b.id, b.advertised)
		dirs, err := bookie.InspectDirs(vfs.OS(), b.journalDirs, b.ledgerDirs, b.indexDirs)
		if err != nil {
			continue // the start proper says it better
		}
		for _, d := range dirs {
			if d.Running && string(d.Bookie) == id {
				return exit(bookie.ExitLocked, fmt.Errorf("bookie %s runs already: another process has %s", id, d.Path))
			}
		}
	}
	return nil
}

// checkDisks refuses file systems that do not keep what they sync, before anything is started.
func (p *process) checkDisks() error {
	for _, b := range p.plan.bookies {
		dirs := slices.Concat(b.journalDirs, b.ledgerDirs, b.indexDirs)
		// A standalone is expected to lie wherever its user is.
		policy := bookie.DiskPolicy{AllowAnyFS: p.config.Disk.AllowAnyFS, AllowShared: p.config.Disk.AllowShared || b.prepare, AllowFull: true}
		warnings, err := bookie.CheckDisks(dirs, policy)
		for _, w := range warnings {
			p.log.Warn("disk", "problem", w)
		}
		if err != nil {
			return withBookieExit(b.id, err)
		}
	}
	return nil
}

func (p *process) startMember(ctx context.Context) error {
	var err error
	p.member, err = etcdmeta.StartEmbedded(ctx, *p.plan.member)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, vfs.ErrLocked):
		return exit(bookie.ExitLocked, err)
	case ctx.Err() != nil:
		return exitIO(errors.New("interrupted while the metadata member started"))
	}
	return exitIO(portHint(err))
}

func (p *process) openStore(ctx context.Context) (metadata.Store, error) {
	store, root, err := driver.Open(ctx, p.plan.uri, driver.Options{Timeout: p.config.Metadata.Timeout.D(0), SessionTTL: p.plan.sessionTTL, Logger: p.etcd})
	if errors.Is(err, driver.ErrURI) {
		return nil, exit(bookie.ExitConfig, fmt.Errorf("metadata.uri: %w", err))
	}
	if err != nil {
		return nil, exit(bookie.ExitRegistration, fmt.Errorf("open metadata store %s: %w", p.plan.uri, err))
	}
	if p.plan.initCluster {
		if _, err := metadata.NewCluster(store, root).Init(ctx); err != nil && !errors.Is(err, metadata.ErrInitialized) {
			return nil, exit(bookie.ExitRegistration, errors.Join(err, store.Close()))
		}
	}
	return store, nil
}

// startBookies starts the bookies side by side: each may have a journal to replay.
func (p *process) startBookies(ctx context.Context, e config.Effective) error {
	if len(p.plan.bookies) == 0 {
		return nil
	}
	views, err := p.loadViews(ctx)
	if err != nil {
		return err
	}
	share := e.Share(len(p.plan.bookies))
	for i, plan := range p.plan.bookies {
		b, err := bookie.New(bookieOptions(p.config, plan, share, views, p.plan.drain, p.log))
		if err != nil {
			return withBookieExit(plan.id, err)
		}
		p.bookies = append(p.bookies, b)
		if p.admin != nil {
			p.admin.SetBookie(i, b.Views())
		}
	}
	failed := make(chan error, len(p.bookies))
	for i, b := range p.bookies {
		go func() {
			failed <- withBookieExit(p.plan.bookies[i].id, b.Start(ctx))
		}()
	}
	var first error
	for range p.bookies {
		if err := <-failed; err != nil && first == nil {
			first = err
		}
	}
	return first
}

func (p *process) loadViews(ctx context.Context) (*metadata.Views, error) {
	p.viewsMu.Lock()
	defer p.viewsMu.Unlock()
	if p.views != nil {
		return p.views, nil
	}
	target, err := driver.Parse(p.plan.uri)
	if err != nil {
		return nil, exit(bookie.ExitConfig, err)
	}
	views, err := metadata.LoadViews(ctx, p.store, target.Root)
	if errors.Is(err, metadata.ErrNotInitialized) {
		return nil, exit(bookie.ExitLocked, fmt.Errorf("there is no cluster at %s: run `bindery cluster init --metadata %s` once", p.plan.uri, p.plan.uri))
	}
	if err != nil {
		return nil, exit(bookie.ExitRegistration, fmt.Errorf("read the cluster's records: %w", err))
	}
	p.views = views
	return views, nil
}

// withBookieExit gives a bookie's error its exit code and says which bookie it was.
func withBookieExit(id string, err error) error {
	if err == nil {
		return nil
	}
	code := bookie.ExitIO
	var e *bookie.ExitError
	if errors.As(err, &e) {
		code = e.Code
	}
	if id != "" {
		err = fmt.Errorf("bookie %s: %w", id, err)
	}
	return exit(code, err)
}

// wait returns when the process should stop: nil when it was told to, an error when a part can not go on.
func (p *process) wait(ctx context.Context) error {
	cases := make(chan error, len(p.bookies)+1)
	done, cancel := context.WithCancel(ctx)
	defer cancel()
	for i, b := range p.bookies {
		go func() {
			select {
			case <-b.Done():
				cases <- withBookieExit(p.plan.bookies[i].id, b.Err())
			case <-done.Done():
			}
		}()
	}
	if p.member != nil {
		go func() {
			select {
			case <-p.member.Failed():
				cases <- exitIO(fmt.Errorf("the metadata member stopped: %w", p.member.Err()))
			case <-done.Done():
			}
		}()
	}
	select {
	case err := <-cases:
		return err
	case <-ctx.Done():
		return nil
	}
}

// stop stops what has been started, bookies first. Errors are logged: the data is safe in the journals whatever happens.
func (p *process) stop(ctx context.Context) error {
	var errs []error
	stopCtx, cancel := context.WithTimeout(ctx, p.plan.drain+stopTimeout)
	defer cancel()
	defer p.drainUntilSignal()()
	p.stopRecovery()
	if err := p.stopOffload(); err != nil {
		p.log.Warn("stop offload", "error", err)
	}
	stopped := make(chan error, len(p.bookies))
	for i, b := range p.bookies {
		go func() {
			err := b.Stop(stopCtx)
			if err != nil {
				err = fmt.Errorf("stop bookie %s: %w", p.plan.bookies[i].id, err)
			}
			stopped <- err
		}()
	}
	for range p.bookies {
		errs = append(errs, <-stopped)
	}
	p.muted.Store(true)
	if p.store != nil {
		errs = append(errs, p.store.Close())
	}
	if p.member != nil {
		errs = append(errs, p.member.Close())
	}
	if p.admin != nil {
		closeCtx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_ = p.admin.Close(closeCtx) // a scraper that will not let go is cut off
	}
	return errors.Join(errs...)
}

// drainUntilSignal lets a signal end the drain instead of the process. What it returns ends that.
func (p *process) drainUntilSignal() (end func()) {
	if p.plan.drain == 0 {
		return func() {}
	}
	// At a level that everybody sees: whoever pressed Ctrl-C waits for the end.
	if p.up.Load() && len(p.bookies) > 0 {
		p.log.Warn(fmt.Sprintf("draining for %d s; another signal ends it", p.plan.drain/time.Second))
	}
	signals := make(chan os.Signal, 1)
	done := make(chan struct{})
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	var wg sync.WaitGroup
	wg.Go(func() {
		select {
		case <-signals:
			signal.Stop(signals) // the next one ends the process
			for _, b := range p.bookies {
				b.EndDrain()
			}
		case <-done:
		}
	})
	return func() {
		signal.Stop(signals)
		close(done)
		wg.Wait()
	}
}

// drainOption is the flag --drain-seconds.
type drainOption struct{ seconds int }

func (o *drainOption) addFlag(c *cobra.Command) {
	c.Flags().IntVar(&o.seconds, "drain-seconds", 0, "at a stop, be registered read-only and serve on for so long, so that clients can move their ledgers; a signal ends it")
}

func (o *drainOption) duration() (time.Duration, error) {
	d := time.Duration(o.seconds) * time.Second
	if o.seconds < 0 || o.seconds > int(drainMax/time.Second) {
		return 0, exit(bookie.ExitConfig, fmt.Errorf("--drain-seconds %d is outside 0 to %d", o.seconds, int(drainMax/time.Second)))
	}
	return d, nil
}

// adminToken reads the bearer token.
func adminToken(name string) (string, error) {
	if name == "" {
		return "", nil
	}
	data, err := vfs.ReadSmall(name, 4096)
	if err != nil {
		return "", fmt.Errorf("http.admin_token_file: %w", err)
	}
	token := strings.TrimSpace(string(data))
	if token == "" {
		return "", fmt.Errorf("http.admin_token_file: %s holds no token", name)
	}
	return token, nil
}

// portHint adds what to do about a port that is taken.
func portHint(err error) error {
	var op *net.OpError
	if errors.Is(err, syscall.EADDRINUSE) && errors.As(err, &op) && op.Addr != nil {
		return fmt.Errorf("%w: another process has %s; stop it or choose another port", err, op.Addr)
	}
	return err
}
