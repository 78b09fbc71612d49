package admin

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	headerBytesMax = 64 << 10
	bodyBytesMax   = 1 << 20
	readTimeout    = 10 * time.Second
	writeTimeout   = 5 * time.Minute // profiles take their time; a caller that does not read is dropped
	idleTimeout    = 2 * time.Minute
	callTimeout    = 2 * time.Minute // a flush of a large cache takes a while
)

// Options says what a server shows.
type Options struct {
	Bookies []Bookie // none for a process that runs only metadata
	Cluster ClusterView
	Config  ConfigView
	Offload OffloadView
	Reload  Reloader      // nil: the configuration can not be read again
	Process MetricsWriter // metrics of the process, shown on /metrics at the root
	Token   string        // bearer token for changing calls; "" = loopback only
	Version string
	Logger  *slog.Logger
}

// Server is the admin HTTP server of a process.
type Server struct {
	o     Options
	log   *slog.Logger
	trees []atomic.Pointer[tree] // of paths, one per bookie
	http  *http.Server
	ln    net.Listener
	wg    sync.WaitGroup

	mu     sync.Mutex
	served error // of the accept loop, once it ended unasked
}

// Listen opens the server on address and starts to serve.
func Listen(ctx context.Context, address string, o Options) (*Server, error) {
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	s := &Server{o: o, log: o.Logger, ln: ln}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.trees = make([]atomic.Pointer[tree], max(len(o.Bookies), 1))
	s.SetBookie(0, Bookie{}) // of a process without a bookie
	for i, b := range o.Bookies {
		s.SetBookie(i, b)
	}
	s.http = &http.Server{
		Handler:           http.HandlerFunc(s.route),
		ReadHeaderTimeout: readTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    headerBytesMax,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	s.wg.Go(func() {
		if err := s.http.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			s.log.Error("admin http server ended", "error", err)
			s.mu.Lock()
			s.served = err
			s.mu.Unlock()
		}
	})
	return s, nil
}

// SetBookie replaces the views of the i-th bookie, which may not have existed when the server was opened.
func (s *Server) SetBookie(i int, b Bookie) {
	t := s.bookieRoutes(b, i == 0)
	s.trees[i].Store(&t)
}

// Addr is the address that the server listens on.
func (s *Server) Addr() net.Addr { return s.ln.Addr() }

// Close stops the server. Calls under way have until ctx ends.
func (s *Server) Close(ctx context.Context) error {
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, s.http.Close())
	}
	s.wg.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return errors.Join(err, s.served)
}

// mayChange says whether a caller may change something, and why not.
func (s *Server) mayChange(r *http.Request) (bool, string) {
	if s.o.Token != "" {
		given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if !ok {
			return false, "this call needs the bearer token of http.admin_token_file"
		}
		a, b := sha256.Sum256([]byte(given)), sha256.Sum256([]byte(s.o.Token))
		if subtle.ConstantTimeCompare(a[:], b[:]) != 1 {
			return false, "the bearer token is not the one of http.admin_token_file"
		}
		return true, ""
	}
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil || !peer.Addr().Unmap().IsLoopback() {
		return false, "this call is admitted from the loopback interface only; set http.admin_token_file to admit it with a token"
	}
	// A web page opened on this machine reaches the loopback interface too.
	if r.Header.Get("Origin") != "" || !loopbackHost(r.Host) {
		return false, "this call is not admitted from a web page"
	}
	return true, ""
}

func loopbackHost(hostport string) bool {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	if host == "localhost" {
		return true
	}
	a, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil && a.IsLoopback()
}
