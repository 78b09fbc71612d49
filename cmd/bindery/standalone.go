package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/binderylog/bindery/bookie"
	"github.com/binderylog/bindery/internal/config"
	"github.com/binderylog/bindery/internal/freeport"
	"github.com/binderylog/bindery/internal/metadata/etcdmeta"
	"github.com/binderylog/bindery/internal/vfs"
	"github.com/spf13/cobra"
)

const (
	standaloneName    = "standalone.json"
	metadataDirName   = "metadata"
	bookieDirPrefix   = "bookie-"
	standaloneMemory  = 1 << 30 // a laptop has other things to do; storage.memory overrides it
	standaloneTTL     = 10 * time.Second
	bookiesMax        = 64
	lockPatience      = 3 * time.Second
	standaloneVersion = 1
)

type standaloneOptions struct {
	config  configOptions
	dataDir string
	bookies int
	domains int
	ports   string
	drain   drainOption
	offload string
}

func newStandaloneCommand() *cobra.Command {
	var o standaloneOptions
	c := &cobra.Command{
		Use:   "standalone",
		Short: "Run a whole cluster on this machine: bookies, metadata and admin server in one process",
		Long: "Runs a number of bookies, an embedded metadata store and the admin server in one process, all on the loopback\n" +
			"interface. A new data directory is prepared; an existing one is continued, with the ports it had. When everything\n" +
			"serves, one line that starts with `ready` is printed and DATA/" + endpointsName + " tells other commands where to connect.\n\n" +
			"Ctrl-C stops it cleanly, a second one at once. A kill -9 loses nothing that was acknowledged.\n\n" +
			"Settings of the configuration file can be given with --config, --set or the environment; addresses and directories\n" +
			"are standalone's own.",
		Example: "  bindery standalone\n  bindery standalone --data-dir /srv/bindery --bookies 5 --ports 7000",
		Args:    cobra.NoArgs,
		RunE:    func(c *cobra.Command, _ []string) error { return o.run(c) },
	}
	o.config.addFlags(c)
	o.drain.addFlag(c)
	f := c.Flags()
	f.StringVar(&o.dataDir, "data-dir", defaultDataDir, "directory for everything")
	f.IntVar(&o.bookies, "bookies", 0, "number of bookies (default 3, or what the directory has)")
	f.IntVar(&o.domains, "domains", 0, "spread the bookies over this many fault domains, /domain-1 and so on (default: each is one of its own)")
	f.StringVar(&o.offload, "offload-dir", "", "offer offload to six folders t1 to t6 in this directory, 4+2: any two may be lost")
	f.StringVar(&o.ports, "ports", "auto", "auto: free ports, kept for later starts of the directory; or a base port: admin BASE, metadata BASE+1 and BASE+2, bookies from BASE+3")
	return c
}

// layout is DATA/standalone.json: what must stay as it was at the first start.
type layout struct {
	Version      int   `json:"version"`
	Bookies      []int `json:"bookie_ports"`
	Admin        int   `json:"admin_port"`
	Metadata     int   `json:"metadata_port"`
	MetadataPeer int   `json:"metadata_peer_port"`
}

func (o *standaloneOptions) run(c *cobra.Command) error {
	if o.bookies < 0 || o.bookies > bookiesMax || o.bookies == 0 && c.Flags().Changed("bookies") {
		return exit(bookie.ExitConfig, fmt.Errorf("--bookies %d is outside 1 to %d", o.bookies, bookiesMax))
	}
	if o.domains < 0 || o.domains > bookiesMax {
		return exit(bookie.ExitConfig, fmt.Errorf("--domains %d is outside 0 to %d", o.domains, bookiesMax))
	}
	drain, err := o.drain.duration()
	if err != nil {
		return err
	}
	l, err := o.load()
	if err != nil {
		return printProblems(c, bookie.ExitConfig, err)
	}
	dir, err := filepath.Abs(o.dataDir)
	if err != nil {
		return exit(bookie.ExitConfig, err)
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return exit(bookie.ExitConfig, fmt.Errorf("data directory: %w", err))
	}
	if err := refuseForeign(dir); err != nil { // before anything is written into it
		return err
	}
	lock, err := lockDataDir(c.Context(), filepath.Join(dir, "LOCK"))
	if errors.Is(err, vfs.ErrLocked) {
		return exit(bookie.ExitLocked, inUse(o.dataDir))
	}
	if err != nil {
		return exitIO(fmt.Errorf("data directory: %w", err))
	}
	defer lock.Close()
	// Left by a process that was killed; nobody else can be serving here now.
	if err := removeEndpoints(dir); err != nil {
		return exitIO(err)
	}
	lay, err := o.layout(dir)
	if err != nil {
		return err
	}
	gone := missingBookies(dir, lay)
	p := newProcess(l, c.ErrOrStderr())
	p.hangupReloads = !isTerminal(c.ErrOrStderr()) // a terminal that goes away takes its programs with it
	p.resolve = func(l *config.Loaded) config.Effective { return resolveStandalone(l, len(lay.Bookies)) }
	e := p.resolve(l)
	p.plan = planStandalone(dir, lay, o.domains)
	p.plan.drain = drain
	p.plan.recovery = wantsRecovery(l, len(lay.Bookies))
	if p.plan.offload = o.offload != ""; p.plan.offload {
		if l.Offload.Targets, err = prepareFolders(dir, o.offload); err != nil {
			return exitIO(fmt.Errorf("--offload-dir: %w", err))
		}
		l.Offload.Dir = filepath.Join(dir, "offload")
	}
	p.plan.member.Logger = p.etcd
	applyLimits(e, p.log)
	err = p.serve(c.Context(), e, func() error {
		ep := endpoints{PID: os.Getpid(), Metadata: p.plan.uri, Admin: "http://" + p.plan.httpListen}
		if p.plan.offload {
			ep.OffloadTargets, ep.OffloadKeySource, ep.OffloadKeyID, ep.OffloadEncryption = l.Offload.Targets, l.Offload.KeySource, l.Offload.KeyID, l.Offload.Encryption
		}
		for _, b := range p.bookies {
			ep.Bookies = append(ep.Bookies, b.Addr().String())
		}
		if err := writeEndpoints(dir, ep); err != nil {
			return exitIO(fmt.Errorf("write %s: %w", endpointsName, err))
		}
		_, err := fmt.Fprintf(c.OutOrStdout(), "ready: %d bookies on %s; metadata %s; admin %s\n", len(ep.Bookies), strings.Join(ep.Bookies, " "), ep.Metadata, ep.Admin)
		return err
	})
	return errors.Join(explainMissing(err, gone), removeEndpoints(dir))
}

// missingBookies lists the bookies of a layout that have no directory: new ones, and lost ones.
func missingBookies(dir string, lay layout) []string {
	var out []string
	for i := range lay.Bookies {
		name := filepath.Join(dir, fmt.Sprintf("%s%d", bookieDirPrefix, i+1))
		if _, err := os.Stat(name); errors.Is(err, fs.ErrNotExist) {
			out = append(out, name)
		}
	}
	return out
}

// explainMissing words the refusal of a bookie that the metadata knows and whose directory is gone: the way out of a fleet,
// `node init --accept-loss`, is not standalone's.
func explainMissing(err error, gone []string) error {
	if len(gone) == 0 || exitCode(err) != bookie.ExitLocked {
		return err
	}
	return exit(bookie.ExitLocked, fmt.Errorf("%s is missing, which a bookie of this cluster had: restore it, or start anew with another --data-dir", strings.Join(gone, ", ")))
}

// lockDataDir takes the lock of the data directory. One that is held gets a moment: a process that was killed holds its
// files until the kernel has taken it apart, and whoever killed it may already be starting the next.
func lockDataDir(ctx context.Context, name string) (io.Closer, error) {
	for deadline := time.Now().Add(lockPatience); ; {
		lock, err := vfs.OS().Lock(name)
		if !errors.Is(err, vfs.ErrLocked) || time.Now().After(deadline) {
			return lock, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(lockPatience / 60):
		}
	}
}

// inUse says who has a data directory. The process that has it may not serve yet, and then nothing is known of it.
func inUse(dataDir string) error {
	who := "another process"
	if e, err := readEndpoints(dataDir); err == nil {
		who = fmt.Sprintf("process %d (admin server %s)", e.PID, e.Admin)
	}
	return fmt.Errorf("data directory %s is in use by %s: stop it, or give another --data-dir", dataDir, who)
}

// load reads the configuration with standalone's own defaults.
func (o *standaloneOptions) load() (*config.Loaded, error) {
	l, err := config.Load(config.Options{
		File: o.config.file, Environ: os.Environ(), Set: o.config.set, Lenient: o.config.lenient,
		Defaults: map[string]string{
			"run.roles": "bookie,metadata", "journal.segment_size": "64MiB", "expert.entry_log_size": "64MiB", "log.level": "warn",
		},
	})
	if err != nil {
		return nil, err
	}
	for _, key := range []string{"run.roles", "bookie.id", "bookie.listen", "bookie.advertised_address", "bookie.domain", "metadata.uri", "metadata.server.dir", "metadata.server.listen",
		"metadata.server.peers", "storage.journal_dirs", "storage.ledger_dirs", "storage.index_dirs", "http.listen"} {
		// The environment may name a cluster for the client commands; that is no wish about this process.
		if l.IsSet(key) && (key != "metadata.uri" || l.Origin(key).Kind != "environment") {
			return nil, config.ProblemsError{{Where: l.Origin(key).String(), Key: key, Msg: "standalone decides this itself: use `bindery run`, or remove it"}}
		}
	}
	return l, nil
}

// resolveStandalone computes the figures with a default budget that leaves the machine to its user.
func resolveStandalone(l *config.Loaded, bookies int) config.Effective {
	m := config.ThisMachine()
	if !l.IsSet("storage.memory") {
		m.Memory, m.MemorySource = min(m.Memory, 2*standaloneMemory), "standalone's" // auto takes half
	}
	return l.Resolve(m, bookies)
}

// layout reads the directory's layout, or makes one; ports that were asked for replace those it had.
func (o *standaloneOptions) layout(dir string) (layout, error) {
	name := filepath.Join(dir, standaloneName)
	var lay layout
	data, err := vfs.ReadFile(vfs.OS(), name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		lay.Version = standaloneVersion
	case err != nil:
		return lay, exitIO(err)
	default:
		if err := json.Unmarshal(data, &lay); err != nil {
			return lay, exit(bookie.ExitFormat, fmt.Errorf("%s is damaged: %w; it holds the number of bookies and their ports: restore it from a backup, or start anew with another --data-dir", name, err))
		}
		if lay.Version > standaloneVersion {
			return lay, exit(bookie.ExitFormat, fmt.Errorf("%s has version %d; this program knows up to %d: use a newer one", name, lay.Version, standaloneVersion))
		}
	}
	n := o.bookies
	if n == 0 {
		n = max(len(lay.Bookies), 1)
		if len(lay.Bookies) == 0 {
			n = 3
		}
	}
	if n < len(lay.Bookies) {
		return lay, exit(bookie.ExitConfig, fmt.Errorf("the directory has %d bookies; with %d of them ledgers would be unavailable (a smaller cluster needs a new directory)", len(lay.Bookies), n))
	}
	if err := o.choosePorts(&lay, n); err != nil {
		return lay, err
	}
	next, err := json.MarshalIndent(lay, "", "  ")
	if next = append(next, '\n'); err == nil && !bytes.Equal(next, data) { // a full disk takes nothing
		err = vfs.WriteFileAtomic(vfs.OS(), name, next)
	}
	if err != nil {
		return lay, exitIO(err)
	}
	return lay, nil
}

// refuseForeign keeps a new cluster out of a directory that holds something else, and an old one from starting without
// what it had: an empty metadata store would deny every ledger.
func refuseForeign(dir string) error {
	names, err := vfs.OS().List(dir)
	if err != nil {
		return exitIO(err)
	}
	if slices.Contains(names, standaloneName) {
		return refuseIncomplete(dir, names)
	}
	for _, n := range names {
		if n != "LOCK" {
			return exit(bookie.ExitConfig, fmt.Errorf("%s holds %q and is no data directory of standalone: name an empty or a new one with --data-dir", dir, n))
		}
	}
	return nil
}

// refuseIncomplete names what is missing in a directory that had it. A first start makes the metadata before any bookie, so
// that one that was cut off has neither.
func refuseIncomplete(dir string, names []string) error {
	held := slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(n, bookieDirPrefix) })
	if held && !slices.Contains(names, metadataDirName) {
		return exit(bookie.ExitIdentity, fmt.Errorf("%s is missing and %s has bookies with data: restore it, or start anew with another --data-dir",
			filepath.Join(dir, metadataDirName), dir))
	}
	return nil
}

func (o *standaloneOptions) choosePorts(lay *layout, bookies int) error {
	if o.ports != "auto" {
		base, err := strconv.Atoi(o.ports)
		if err != nil || base < 1 || base+3+bookies > 65536 {
			return exit(bookie.ExitConfig, fmt.Errorf("--ports %q is neither auto nor a base port", o.ports))
		}
		lay.Admin, lay.Metadata, lay.MetadataPeer = base, base+1, base+2
		lay.Bookies = make([]int, bookies)
		for i := range lay.Bookies {
			lay.Bookies[i] = base + 3 + i
		}
		return nil
	}
	var pick freeport.Picker
	defer pick.Close()
	next := func(port *int) (err error) {
		if *port, err = pick.Next(); err != nil {
			return exitIO(fmt.Errorf("%w: name a base port with --ports", err))
		}
		return nil
	}
	for _, p := range []*int{&lay.Admin, &lay.Metadata, &lay.MetadataPeer} {
		if *p == 0 {
			if err := next(p); err != nil {
				return err
			}
		}
	}
	for len(lay.Bookies) < bookies {
		lay.Bookies = append(lay.Bookies, 0)
		if err := next(&lay.Bookies[len(lay.Bookies)-1]); err != nil {
			return err
		}
	}
	return nil
}

// planStandalone lays out the process. Every bookie has a directory of its own under the data directory.
func planStandalone(dir string, lay layout, domains int) plan {
	p := plan{
		uri:         "etcd://" + freeport.Address(lay.Metadata) + "/ledgers",
		initCluster: true,
		sessionTTL:  standaloneTTL,
		httpListen:  freeport.Address(lay.Admin),
		member: &etcdmeta.EmbeddedOptions{
			Dir: filepath.Join(dir, metadataDirName), ClientURL: "http://" + freeport.Address(lay.Metadata), PeerURL: "http://" + freeport.Address(lay.MetadataPeer),
		},
	}
	for i, port := range lay.Bookies {
		domain := ""
		if domains > 0 {
			domain = fmt.Sprintf("/domain-%d", i%domains+1)
		}
		base := filepath.Join(dir, fmt.Sprintf("%s%d", bookieDirPrefix, i+1))
		p.bookies = append(p.bookies, bookiePlan{
			id: fmt.Sprintf("standalone-%d", i+1), listen: freeport.Address(port), advertised: freeport.Address(port), admin: freeport.Address(lay.Admin), domain: domain, prepare: true,
			journalDirs: []string{filepath.Join(base, "journal")}, ledgerDirs: []string{filepath.Join(base, "ledgers")},
		})
	}
	return p
}
