// Package faultproxy stands between an S3 client and an S3 server and does what networks and servers do: it is slow, refuses, cuts requests and answers,
// flips bits, lies about lengths, and swallows answers after the server has done what was asked.
//
//	p := faultproxy.Start(t, server.URL)
//	p.Set(faultproxy.On("PUT", faultproxy.Nth(2, faultproxy.LoseReply())))
//
// No server can play these faults, and the proxy plays them before any server. Requests pass unchanged, host header included, so signatures hold.
// Only plain http. Only tests import it. A proxy starts the goroutines of an HTTP server; they end with the test.
package faultproxy

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Request is what an Injector decides by.
type Request struct {
	N      int // 1 for the first request of the proxy
	Method string
	Path   string
	Query  string
	Length int64 // of the body
	Header http.Header
}

type effect uint8

const (
	effectNone effect = iota
	effectStatus
	effectCutRequest
	effectCutReply
	effectLoseReply
	effectLength
	effectFlipRequest
	effectFlipReply
	effectDelay
	effectHang
	effectReset
	effectHTML
)

// Fault is what happens to a request. The zero value lets it pass.
type Fault struct {
	effect effect
	status int
	code   string
	date   time.Duration
	delay  time.Duration
	n      int64
}

// Refuse answers with that status and S3's error of that code; the server is not asked.
func Refuse(status int, code string) Fault {
	return Fault{effect: effectStatus, status: status, code: code}
}

// Skewed refuses as a server does whose clock is ahead of the client's by that much.
func Skewed(by time.Duration) Fault {
	return Fault{effect: effectStatus, status: http.StatusForbidden, code: "RequestTimeTooSkewed", date: by}
}

// HTML answers with a web page, as something that is no object store does.
func HTML(status int) Fault { return Fault{effect: effectHTML, status: status} }

// CutRequest passes n bytes of the body on, then breaks both connections.
func CutRequest(n int64) Fault { return Fault{effect: effectCutRequest, n: n} }

// CutReply announces the whole answer and sends n bytes of its body, then breaks the connection.
func CutReply(n int64) Fault { return Fault{effect: effectCutReply, n: n} }

// LoseReply lets the server do what is asked and breaks the connection instead of answering.
func LoseReply() Fault { return Fault{effect: effectLoseReply} }

// WrongLength adds n to the length that an answer announces.
func WrongLength(n int64) Fault { return Fault{effect: effectLength, n: n} }

// FlipRequest inverts one bit of the body on its way to the server.
func FlipRequest(bit int64) Fault { return Fault{effect: effectFlipRequest, n: bit} }

// FlipReply inverts one bit of the answer's body.
func FlipReply(bit int64) Fault { return Fault{effect: effectFlipReply, n: bit} }

// Delay answers after d.
func Delay(d time.Duration) Fault { return Fault{effect: effectDelay, delay: d} }

// Hang answers nothing until the client goes away; the server is not asked.
func Hang() Fault { return Fault{effect: effectHang} }

// Reset breaks the connection at once; the server is not asked.
func Reset() Fault { return Fault{effect: effectReset} }

// Injector says what happens to a request. It may keep state; requests come one at a time.
type Injector func(Request) Fault

// Always injects f into every request.
func Always(f Fault) Injector { return func(Request) Fault { return f } }

// Nth injects f into the nth request that it sees, counted from 1.
func Nth(n int, f Fault) Injector {
	seen := 0
	return func(Request) Fault {
		if seen++; seen == n {
			return f
		}
		return Fault{}
	}
}

// Rate injects f into a share of requests, chosen by seed.
func Rate(seed uint64, share float64, f Fault) Injector {
	rng := rand.New(rand.NewPCG(seed, seed))
	return func(Request) Fault {
		if rng.Float64() < share {
			return f
		}
		return Fault{}
	}
}

// On shows in only the requests of a method whose path and query hold each of the texts.
func On(method string, in Injector, texts ...string) Injector {
	return func(r Request) Fault {
		if r.Method != method {
			return Fault{}
		}
		for _, text := range texts {
			if !strings.Contains(r.Path+"?"+r.Query, text) {
				return Fault{}
			}
		}
		return in(r)
	}
}

// Proxy is a running proxy.
type Proxy struct {
	URL string

	upstream string
	client   *http.Client

	mu       sync.Mutex
	inject   Injector
	requests []Request
	injected int
}

// Start starts a proxy before a server and stops it when the test ends.
func Start(t testing.TB, upstream string) *Proxy {
	t.Helper()
	p := &Proxy{upstream: strings.TrimPrefix(upstream, "http://")}
	transport := &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 64}
	p.client = &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // a test's own listener
	if err != nil {
		t.Fatal(err)
	}
	p.URL = "http://" + l.Addr().String()
	srv := &http.Server{Handler: p, ReadHeaderTimeout: time.Minute}
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(l) }()
	t.Cleanup(func() {
		_ = srv.Close() // also what hangs
		<-done
		transport.CloseIdleConnections()
	})
	return p
}

// Set changes the faults; nil is none.
func (p *Proxy) Set(in Injector) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inject = in
}

// Requests returns the requests so far.
func (p *Proxy) Requests() []Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]Request(nil), p.requests...)
}

// Injected returns how many requests had a fault so far.
func (p *Proxy) Injected() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.injected
}

func (p *Proxy) next(r *http.Request) Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	q := Request{N: len(p.requests) + 1, Method: r.Method, Path: r.URL.Path, Query: r.URL.RawQuery, Length: r.ContentLength, Header: r.Header.Clone()}
	p.requests = append(p.requests, q)
	if p.inject == nil {
		return Fault{}
	}
	f := p.inject(q)
	if f != (Fault{}) {
		p.injected++
	}
	return f
}

// ServeHTTP implements http.Handler.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f := p.next(r)
	switch f.effect {
	case effectStatus:
		refuse(w, r, f)
		return
	case effectHTML:
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(f.status)
		fmt.Fprint(w, "<html><body>It works!</body></html>")
		return
	case effectHang:
		<-r.Context().Done()
		return
	case effectReset:
		hangUp(w)
		return
	case effectDelay:
		timer := time.NewTimer(f.delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-r.Context().Done():
			return
		}
	}
	p.pass(w, r, f)
}

func refuse(w http.ResponseWriter, r *http.Request, f Fault) {
	_, _ = io.Copy(io.Discard, r.Body)
	if f.date != 0 {
		w.Header().Set("Date", time.Now().Add(f.date).UTC().Format(http.TimeFormat))
	}
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(f.status)
	if r.Method != http.MethodHead {
		fmt.Fprintf(w, `<?xml version="1.0" encoding="UTF-8"?><Error><Code>%s</Code><Message>injected</Message></Error>`, f.code)
	}
}

// hangUp breaks the client's connection.
func hangUp(w http.ResponseWriter) {
	c, _, err := http.NewResponseController(w).Hijack()
	if err == nil {
		_ = c.Close()
	}
}

// pass asks the server and answers, with what f says on the way.
func (p *Proxy) pass(w http.ResponseWriter, r *http.Request, f Fault) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		hangUp(w)
		return
	}
	if f.effect == effectCutRequest {
		p.cutRequest(r, body[:min(f.n, int64(len(body)))])
		hangUp(w)
		return
	}
	if f.effect == effectFlipRequest {
		flip(body, f.n)
	}
	status, header, data, err := p.ask(r, body)
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	if f.effect == effectLoseReply {
		hangUp(w)
		return
	}
	if f.effect == effectFlipReply {
		flip(data, f.n)
	}
	for name, v := range header {
		w.Header()[name] = v
	}
	if f.effect != effectLength && f.effect != effectCutReply {
		w.WriteHeader(status)
		_, _ = w.Write(data) // a client that is gone has what it wanted
		return
	}
	if f.effect == effectLength {
		n, _ := strconv.ParseInt(header.Get("Content-Length"), 10, 64)
		w.Header().Set("Content-Length", strconv.FormatInt(n+f.n, 10))
		data = append(data, make([]byte, max(f.n, 0))...)
	} else {
		data = data[:min(f.n, int64(len(data)))]
	}
	raw(w, r, status, data)
}

// raw answers by hand: net/http keeps its own servers from lying.
func raw(w http.ResponseWriter, r *http.Request, status int, data []byte) {
	header := w.Header().Clone()
	c, buf, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer c.Close()
	fmt.Fprintf(buf, "HTTP/1.1 %d %s\r\n", status, http.StatusText(status))
	header.Set("Connection", "close")
	_ = header.Write(buf)
	fmt.Fprint(buf, "\r\n")
	if r.Method != http.MethodHead {
		_, _ = buf.Write(data)
	}
	_ = buf.Flush()
}

func flip(b []byte, bit int64) {
	if len(b) > 0 {
		b[bit/8%int64(len(b))] ^= 1 << (bit % 8)
	}
}

func (p *Proxy) ask(r *http.Request, body []byte) (status int, header http.Header, data []byte, err error) {
	req, err := http.NewRequestWithContext(context.WithoutCancel(r.Context()), r.Method, "http://"+p.upstream, bytes.NewReader(body))
	if err != nil {
		return 0, nil, nil, err
	}
	req.URL.Path, req.URL.RawPath, req.URL.RawQuery = r.URL.Path, r.URL.RawPath, r.URL.RawQuery
	req.Host = r.Host // what was signed
	for name, v := range r.Header {
		req.Header[name] = v
	}
	reply, err := p.client.Do(req)
	if err != nil {
		return 0, nil, nil, err
	}
	defer reply.Body.Close()
	data, err = io.ReadAll(reply.Body)
	return reply.StatusCode, reply.Header, data, err
}

// cutRequest sends a request whose body ends too early, and waits until the server has noticed.
func (p *Proxy) cutRequest(r *http.Request, body []byte) {
	c, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(r.Context(), "tcp", p.upstream)
	if err != nil {
		return
	}
	defer c.Close()
	fmt.Fprintf(c, "%s %s HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n", r.Method, r.URL.RequestURI(), r.Host, r.ContentLength)
	_ = r.Header.Write(c)
	fmt.Fprint(c, "\r\n")
	_, _ = c.Write(body)
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.CloseWrite()
	}
	_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
	_, _ = io.Copy(io.Discard, c)
}
