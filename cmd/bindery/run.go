package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/binderylog/bindery/bookie"
	"github.com/binderylog/bindery/internal/config"
	"github.com/binderylog/bindery/internal/metadata/driver"
	"github.com/binderylog/bindery/internal/metadata/etcdmeta"
	"github.com/spf13/cobra"
)

type runOptions struct {
	config   configOptions
	roles    []string
	readOnly bool
	drain    drainOption
}

func newRunCommand() *cobra.Command {
	var o runOptions
	c := &cobra.Command{
		Use:   "run --config FILE",
		Short: "Run the parts of a fleet that this machine has: bookie, metadata, recovery, offload",
		Long: "Runs a bookie, a metadata member, auto-recovery, or several of them, as the configuration says, until it is told to stop (SIGINT or SIGTERM;\n" +
			"a second signal ends it at once, which loses nothing that was acknowledged). SIGHUP makes it read its configuration\n" +
			"again; what can not change while it runs is named in the log and needs a restart.\n\n" +
			"It never formats anything: `bindery cluster init` makes a cluster and `bindery node init` prepares directories.\n\n" +
			"Exit codes: 1 bad configuration, missing directory or permission, 2 port in use or disk error, 4 the metadata store refused or\n" +
			"could not be reached, 10 the directories belong to another bookie, cluster or time, 11 a directory is locked or\n" +
			"not prepared, 12 a directory was written by a newer version or by another engine.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return o.run(c) },
	}
	o.config.addFlags(c)
	c.Flags().StringSliceVar(&o.roles, "roles", nil, "parts to run, instead of run.roles: bookie, metadata, recovery, offload")
	c.Flags().BoolVar(&o.readOnly, "read-only", false, "start read-only and stay so")
	o.drain.addFlag(c)
	return c
}

func (o *runOptions) run(c *cobra.Command) error {
	if len(o.roles) > 0 {
		o.config.set = append(slices.Clone(o.config.set), "run.roles="+strings.Join(o.roles, ","))
	}
	l, err := o.config.load()
	if err != nil {
		return printProblems(c, bookie.ExitConfig, err)
	}
	p := newProcess(l, c.ErrOrStderr())
	p.hangupReloads = true
	if p.plan, err = planRun(l, o.readOnly); err != nil {
		return exit(bookie.ExitConfig, err)
	}
	if p.plan.drain, err = o.drain.duration(); err != nil {
		return err
	}
	if l.HasRole("metadata") {
		if err := checkOwnMetadata(l.Metadata.URI, l.Metadata.Server.Listen); err != nil {
			return exit(bookie.ExitConfig, err)
		}
		p.plan.member.Logger = p.etcd
	}
	p.resolve = func(l *config.Loaded) config.Effective { return l.Resolve(config.ThisMachine(), len(p.plan.bookies)) }
	e := p.resolve(l)
	applyLimits(e, p.log)
	return p.serve(c.Context(), e, func() error {
		if p.member != nil {
			p.log.Info("metadata serves", "address", l.Metadata.Server.Listen)
		}
		for _, b := range p.bookies {
			p.log.Info("serving", "address", b.Addr().String())
		}
		return nil
	})
}

// serve starts the process, says so, waits and stops.
func (p *process) serve(ctx context.Context, e config.Effective, ready func() error) error {
	n := startNotifier(context.WithoutCancel(ctx), p.replaying)
	defer n.close()
	defer p.reloadOnHangup()()
	if !p.hangupReloads && !signal.Ignored(syscall.SIGHUP) { // nohup
		var end context.CancelFunc
		ctx, end = signal.NotifyContext(ctx, syscall.SIGHUP) // caught to the end: a closing terminal sends several
		defer end()
	}
	if err := p.start(ctx, e); err != nil {
		if ctx.Err() != nil && errors.Is(err, context.Canceled) {
			p.log.Info("stopped while starting")
			return nil
		}
		return err
	}
	err := ready()
	if err == nil {
		n.send("READY=1")
		err = p.wait(ctx)
	}
	n.send("STOPPING=1")
	p.log.Info("stopping")
	serr := p.stop(context.WithoutCancel(ctx))
	if err == nil && serr != nil {
		err = exitIO(fmt.Errorf("stop: %w", serr))
	}
	if err == nil {
		p.log.Info("stopped")
	}
	return err
}

// planRun works out what `run` runs.
func planRun(l *config.Loaded, readOnly bool) (plan, error) {
	pl := plan{uri: l.Metadata.URI, sessionTTL: l.Metadata.Timeout.D(0), httpListen: l.HTTP.Listen}
	if l.HasRole("metadata") {
		m, err := planMember(l.Metadata.Server)
		if err != nil {
			return pl, err
		}
		pl.member = m
		if pl.uri == "" {
			pl.uri = "etcd://" + dialable(l.Metadata.Server.Listen) + "/ledgers"
		}
	}
	if l.HasRole("bookie") {
		listen, advertised, err := addresses(l.Bookie)
		if err != nil {
			return pl, err
		}
		pl.bookies = append(pl.bookies, bookiePlan{
			id: l.Bookie.ID, listen: listen, advertised: advertised, admin: adminAddress(l.HTTP.Listen, advertised), readOnly: readOnly,
			journalDirs: l.Storage.JournalDirs, ledgerDirs: l.Storage.LedgerDirs, indexDirs: l.Storage.IndexDirs,
		})
	}
	pl.recovery = wantsRecovery(l, len(pl.bookies))
	pl.offload = l.HasRole("offload")
	return pl, nil
}

// checkOwnMetadata refuses a member that metadata.uri does not name: it would be a new and empty store, which nobody uses.
func checkOwnMetadata(uri, listen string) error {
	if uri == "" {
		return nil
	}
	t, err := driver.Parse(uri)
	if err != nil {
		return fmt.Errorf("metadata.uri: %w", err)
	}
	local, err := localAddresses()
	if err != nil {
		return err
	}
	_, port, err := net.SplitHostPort(listen)
	if err != nil {
		return fmt.Errorf("metadata.server.listen: %w", err)
	}
	for _, e := range t.Endpoints {
		if _, rest, ok := strings.Cut(e, "://"); ok {
			e = rest
		}
		host, p, err := net.SplitHostPort(e)
		// What a name stands for is for the resolver to say.
		if err == nil && p == port && t.Driver == "etcd" && (local[host] || isLoopback(host) || net.ParseIP(host) == nil) {
			return nil
		}
	}
	return fmt.Errorf("the role metadata would serve a store at %s that metadata.uri = %q does not name: remove the role, name the member there, or remove metadata.uri", listen, uri)
}

// planMember translates [metadata.server]. Of the peers, the one with an address of this machine is this member.
func planMember(s config.MetadataServer) (*etcdmeta.EmbeddedOptions, error) {
	o := &etcdmeta.EmbeddedOptions{Dir: s.Dir, ClientURL: "http://" + s.Listen}
	if len(s.Peers) == 0 {
		return o, nil
	}
	local, err := localAddresses()
	if err != nil {
		return nil, err
	}
	var members []string
	for _, peer := range s.Peers {
		name, addr, _ := strings.Cut(peer, "=")
		members = append(members, name+"=http://"+addr)
		host, _, _ := net.SplitHostPort(addr)
		if local[host] {
			if o.Name != "" {
				return nil, fmt.Errorf("metadata.server.peers: both %s and %s are addresses of this machine", o.Name, name)
			}
			o.Name, o.PeerURL = name, "http://"+addr
		}
	}
	if o.Name == "" {
		return nil, fmt.Errorf("metadata.server.peers: none of %s is an address of this machine", strings.Join(s.Peers, ", "))
	}
	o.Cluster = strings.Join(members, ",")
	return o, nil
}

// localAddresses is the set of names and addresses of this machine.
func localAddresses() (map[string]bool, error) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("list this machine's addresses: %w", err)
	}
	local := map[string]bool{"localhost": true}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok {
			local[n.IP.String()] = true
		}
	}
	if name, err := os.Hostname(); err == nil {
		local[name] = true
	}
	return local, nil
}

// dialable turns a listen address into one that this machine can connect to.
func dialable(listen string) string {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return listen
	}
	if ip := net.ParseIP(host); host == "" || (ip != nil && ip.IsUnspecified()) {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}

// addresses works out where a bookie listens and what it tells clients. Clients elsewhere can not use a loopback address,
// so one is never guessed; a bookie that listens on one says so itself.
func addresses(b config.Bookie) (listen, advertised string, err error) {
	host, port, err := net.SplitHostPort(b.Listen)
	if err != nil {
		return "", "", fmt.Errorf("bookie.listen: %w", err)
	}
	if name, ok := strings.CutPrefix(host, "%"); ok {
		if host, err = interfaceAddress(name); err != nil {
			return "", "", fmt.Errorf("bookie.listen: %w", err)
		}
	}
	listen = net.JoinHostPort(host, port)
	if b.AdvertisedAddress != "" {
		return listen, net.JoinHostPort(b.AdvertisedAddress, port), nil
	}
	if ip := net.ParseIP(host); host != "" && (ip == nil || !ip.IsUnspecified()) {
		return listen, net.JoinHostPort(host, port), nil
	}
	addr, err := defaultRouteAddress()
	if err != nil {
		return "", "", err
	}
	return listen, net.JoinHostPort(addr, port), nil
}

// adminAddress is what a bookie tells others about its admin server: where it listens, or, if that is everywhere, the host
// that the bookie itself is reached under. One that only this machine reaches is told only of a bookie that is so too.
func adminAddress(listen, advertised string) string {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return "" // none
	}
	name, _, err := net.SplitHostPort(advertised)
	if err != nil {
		name = advertised
	}
	ip := net.ParseIP(host)
	switch {
	case host == "" || ip != nil && ip.IsUnspecified():
		if name == "" {
			return ""
		}
		return net.JoinHostPort(name, port)
	case isLoopback(host) && !isLoopback(name):
		return ""
	}
	return listen
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// interfaceAddress is the first address of a network interface, IPv4 before IPv6.
func interfaceAddress(name string) (string, error) {
	ifc, err := net.InterfaceByName(name)
	if err != nil {
		return "", fmt.Errorf("interface %s: %w", name, err)
	}
	addrs, err := ifc.Addrs()
	if err != nil {
		return "", fmt.Errorf("interface %s: %w", name, err)
	}
	best := ""
	for _, a := range addrs {
		n, ok := a.(*net.IPNet)
		if !ok || n.IP.IsLinkLocalUnicast() {
			continue
		}
		if n.IP.To4() != nil {
			return n.IP.String(), nil
		}
		if best == "" {
			best = n.IP.String()
		}
	}
	if best == "" {
		return "", fmt.Errorf("interface %s has no address", name)
	}
	return best, nil
}

var errNoRoute = errors.New("bookie.advertised_address is not set and this machine has no default route to take an address from: set it to a name or address that clients reach")

// defaultRouteAddress is the source address of the default route. Connecting a datagram socket sends nothing.
func defaultRouteAddress() (string, error) {
	c, err := net.Dial("udp", "198.51.100.1:9") //nolint:noctx // a route look-up, which does not wait
	if err != nil {
		return "", errNoRoute
	}
	defer c.Close()
	a, ok := c.LocalAddr().(*net.UDPAddr)
	if !ok || a.IP.IsLoopback() || a.IP.IsUnspecified() {
		return "", errNoRoute
	}
	return a.IP.String(), nil
}
