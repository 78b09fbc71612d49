package zkmeta

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"
)

// link is one ZooKeeper session with its connection. It implements metadata.Session.
//
// The client library starts a new session by itself when the old one has expired. A link forbids that: from the moment on
// that the session has ended its dialer connects no more.
type link struct {
	s      *Store
	conn   *zk.Conn
	events <-chan zk.Event
	done   chan struct{} // closed when the session has ended
	login  chan struct{} // capacity one: connected, credentials have to be sent
	heard  atomic.Int64  // when a byte was last received, Unix nanoseconds

	mu    sync.Mutex // guards what follows
	over  bool
	up    chan struct{} // closed while connected
	isUp  bool
	auth  bool // credentials have been accepted, or there are none
	id    int64
	timer *time.Timer // ends the session when ZooKeeper stays away
	net   net.Conn

	watches dispatch
	syncs   syncer
	draws   drawers
	batch   batcher
}

// newLink starts a session in the background. The store's lock is held.
func (s *Store) newLink() (*link, error) {
	l := &link{s: s, done: make(chan struct{}), up: make(chan struct{}), login: make(chan struct{}, 1), auth: s.o.Username == ""}
	l.syncs.l, l.draws.l, l.batch.l = l, l, l
	l.mu.Lock() // the library calls back before it returns
	defer l.mu.Unlock()
	conn, events, err := zk.Connect(s.o.Servers, s.o.SessionTTL,
		zk.WithDialer(l.dial), zk.WithHostProvider(&hosts{}), zk.WithEventCallback(l.event),
		zk.WithLogger(debugLog{s.o.Logger}), zk.WithLogInfo(false))
	if err != nil {
		return nil, fmt.Errorf("zookeeper: %w", err)
	}
	l.conn, l.events = conn, events
	return l, nil
}

// ID implements metadata.Session.
func (l *link) ID() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return sessionName(l.id)
}

// sessionName is the id of the session that owns an ephemeral node, "" for none.
func sessionName(owner int64) string {
	if owner == 0 {
		return ""
	}
	return strconv.FormatUint(uint64(owner), 16)
}

// Done implements metadata.Session.
func (l *link) Done() <-chan struct{} { return l.done }

func (l *link) ended() bool {
	select {
	case <-l.done:
		return true
	default:
		return false
	}
}

// wait returns nil as soon as the session is connected, and errEnded if it never will be again.
func (l *link) wait(ctx context.Context) error {
	l.mu.Lock()
	up := l.up
	l.mu.Unlock()
	select {
	case <-l.done:
		return errEnded
	default:
	}
	select {
	case <-up:
		return nil
	case <-l.done:
		return errEnded
	case <-ctx.Done():
		return ctx.Err()
	}
}

// end closes the session: ZooKeeper is told if it is connected, so that ephemeral nodes go at once.
func (l *link) end(why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.endLocked(why)
}

func (l *link) endLocked(why string) {
	if l.over {
		return
	}
	l.over = true
	if l.timer != nil {
		l.timer.Stop()
	}
	if l.s.stop.Err() == nil && l.id != 0 {
		l.s.o.Logger.Warn("metadata session lost: its ephemeral keys are gone or about to go", "session", sessionName(l.id), "why", why)
	}
	close(l.done)
}

// run sends credentials where there are any, and waits for the session's end and for the library's goroutines.
func (l *link) run() {
	for !l.ended() {
		select {
		case <-l.login:
			l.authenticate()
		case <-l.done:
		}
	}
	l.conn.Close()
	l.mu.Lock()
	if l.net != nil { // the library leaves it open when the session has expired
		_ = l.net.Close()
	}
	l.mu.Unlock()
	for range l.events {
	}
}

// noticed takes note of what a call's error says about the session.
func (l *link) noticed(err error) {
	if errors.Is(err, zk.ErrSessionExpired) {
		l.end("zookeeper has expired it")
	}
}

// event is the library's callback. It must not block.
func (l *link) event(e zk.Event) {
	if e.Type != zk.EventSession {
		if e.Path != "" && e.Type != zk.EventNotWatching {
			l.watches.event(e)
		}
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch e.State {
	case zk.StateHasSession:
		l.connectedLocked()
	case zk.StateExpired:
		l.endLocked("zookeeper has expired it")
	case zk.StateDisconnected:
		if l.isUp {
			l.isUp, l.up = false, make(chan struct{})
		}
		if l.id != 0 && !l.over {
			left := time.Until(time.Unix(0, l.heard.Load()).Add(l.s.o.SessionTTL))
			l.timer = time.AfterFunc(max(left, 0), func() { l.end("no server was reached within its life") })
		}
	}
}

func (l *link) connectedLocked() {
	if l.over {
		return
	}
	if l.timer != nil {
		l.timer.Stop()
	}
	if id := l.conn.SessionID(); l.id == 0 {
		l.id = id
	} else if l.id != id {
		l.endLocked("zookeeper has replaced it")
		return
	}
	if !l.auth {
		select {
		case l.login <- struct{}{}:
		default:
		}
		return
	}
	if !l.isUp {
		l.isUp = true
		close(l.up)
	}
}

// authenticate sends user and password on the first connection; the library repeats them on later ones.
func (l *link) authenticate() {
	err := l.conn.AddAuth("digest", []byte(l.s.o.Username+":"+l.s.o.Password))
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.s.o.Logger.Error("zookeeper does not accept user and password", "error", err)
		return
	}
	if l.auth = true; l.conn.State() == zk.StateHasSession {
		l.connectedLocked()
	}
}

// dial opens a connection for the session, unless it has ended.
func (l *link) dial(network, address string, _ time.Duration) (net.Conn, error) {
	if l.ended() {
		return nil, errEnded
	}
	d := &net.Dialer{Timeout: dialTimeout}
	ctx, cancel := context.WithTimeout(l.s.stop, dialTimeout)
	defer cancel()
	var c net.Conn
	var err error
	if l.s.o.TLS != nil {
		c, err = (&tls.Dialer{NetDialer: d, Config: l.s.o.TLS}).DialContext(ctx, network, address)
	} else {
		c, err = d.DialContext(ctx, network, address)
	}
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	l.net = c
	l.mu.Unlock()
	return &heardConn{Conn: c, heard: &l.heard, greetBy: time.Now().Add(greetTimeout)}, nil
}

// heardConn notes when something was received. It gives the server greetTimeout to grant the session; the library alone
// would wait for seven lives of a session, and for ever if the answer came in pieces.
type heardConn struct {
	net.Conn
	heard *atomic.Int64

	greetBy  time.Time
	greeting int // bytes of the answer to the connect request so far
}

// greetingHeader is the length that comes before the answer to the connect request.
const greetingHeader = 4

// Read implements net.Conn. The library reads from one goroutine at a time.
func (c *heardConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.heard.Store(time.Now().UnixNano())
	}
	if c.greeting <= greetingHeader {
		c.greeting += n
	}
	return n, err
}

// SetReadDeadline implements net.Conn. The library sets one before the answer's length, none before its body, and the next
// before the first reply.
func (c *heardConn) SetReadDeadline(t time.Time) error {
	if c.greeting <= greetingHeader {
		t = c.greetBy
	}
	return c.Conn.SetReadDeadline(t)
}

// hosts hands the servers out in turn. Names are resolved at each dial, so that one that has moved is found again.
type hosts struct {
	mu      sync.Mutex
	servers []string
	next    int
	tried   int // since the last connection
}

// Init implements zk.HostProvider.
func (h *hosts) Init(servers []string) error {
	h.servers = servers
	return nil
}

// Len implements zk.HostProvider.
func (h *hosts) Len() int { return len(h.servers) }

// Next implements zk.HostProvider. retryStart makes the library pause for a second.
func (h *hosts) Next() (server string, retryStart bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	server = h.servers[h.next%len(h.servers)]
	h.next++
	retryStart = h.tried > 0 && h.tried%len(h.servers) == 0
	h.tried++
	return server, retryStart
}

// Connected implements zk.HostProvider.
func (h *hosts) Connected() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tried = 0
}

// debugLog takes the library's log lines.
type debugLog struct{ l *slog.Logger }

// Printf implements zk.Logger.
func (d debugLog) Printf(format string, args ...any) {
	d.l.Debug("zookeeper client", "message", fmt.Sprintf(format, args...))
}
