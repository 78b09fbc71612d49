package s3

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/binderylog/bindery/internal/vfs"
)

const (
	dialTimeout  = 5 * time.Second
	tlsTimeout   = 10 * time.Second
	idleTimeout  = 90 * time.Second
	idlePerHost  = 64
	errorBodyMax = 64 << 10
	headerMax    = 64 << 10
	answerMax    = 16 << 20        // of a success that is no object: the longest is a list of a thousand keys
	replyTimeout = 5 * time.Minute // for the first byte; the caller's context is usually shorter
)

// errRefused is what the library gets to see of every request that did not succeed. It wraps context.Canceled, and the context is cancelled with it: so the
// library does not wait for a retry that it is not to make, and the exchange is the one place that says what happened.
var errRefused = fmt.Errorf("request failed: %w", context.Canceled)

// exchange is one request and its answer, as they crossed the wire.
type exchange struct {
	header http.Header // added to the request before it is signed
	cancel context.CancelFunc

	sent   atomic.Bool // the request's header is on the wire
	body   *lentBody   // what is sent; nil: nothing, or a copy
	key    secret      // what it was signed with
	status int
	reply  http.Header
	answer answer // of a status that is no success
	err    error  // no answer
}

// answer is the body of a refusal.
type answer struct {
	XMLName xml.Name `xml:"Error"`
	Code    string
	Message string
	Region  string
	text    string // its beginning, when it is not XML
	length  int
}

type exchangeKey struct{}

func exchangeOf(ctx context.Context) *exchange {
	x, _ := ctx.Value(exchangeKey{}).(*exchange)
	return x
}

// transport adds headers, signs, sends, and keeps what came back in the exchange.
type transport struct {
	base   http.RoundTripper
	keys   *keyring
	region string
	now    func() time.Time
	skew   atomic.Int64 // ns to add to this machine's clock

	answered atomic.Bool // the server has said something, in this protocol
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	x := exchangeOf(req.Context())
	if x == nil { // a request that this package did not ask for: the library must not make any
		return nil, errors.New("s3: unexpected request " + req.Method + " " + req.URL.Redacted())
	}
	resp, err := t.send(req, x)
	if err == nil && resp.StatusCode >= 200 && resp.StatusCode < 300 {
		if x.header.Get("Range") == "" { // the library reads these whole
			resp.Body = &boundedBody{in: resp.Body, left: answerMax}
		}
		return resp, nil
	}
	if err != nil {
		x.err = err
	} else {
		x.answer = readAnswer(resp.Body)
		resp.Body.Close()
	}
	x.cancel()
	return nil, errRefused
}

func (t *transport) send(req *http.Request, x *exchange) (*http.Response, error) {
	key, err := t.keys.get(req.Context())
	if err != nil {
		return nil, &credentialError{err}
	}
	x.key = key
	ctx := httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{WroteHeaders: func() { x.sent.Store(true) }})
	r := req.Clone(ctx)
	r.URL.RawPath = escape(r.URL.Path, true) // what is signed is what is sent
	for name, v := range x.header {
		r.Header[name] = v
	}
	payload := emptyPayload
	switch {
	case r.Body == nil:
	case r.Method == http.MethodPost: // lists of parts: small, and over plain http the signature should cover them
		b, err := io.ReadAll(r.Body)
		r.Body.Close()
		if err != nil {
			return nil, err
		}
		r.Body, payload = io.NopCloser(bytes.NewReader(b)), hexSHA256(b)
	default:
		payload = unsignedPayload
		x.body = &lentBody{r: r.Body}
		r.Body = x.body
	}
	sign(r, key, t.region, payload, t.now().Add(time.Duration(t.skew.Load())))
	resp, err := t.base.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	t.answered.Store(true)
	x.status, x.reply = resp.StatusCode, resp.Header
	return resp, nil
}

// lentBody is a caller's buffer on its way out. net/http may go on reading it after a request has ended, if the answer or the caller's end came before
// the last byte was sent; the buffer is the caller's again by then and may hold something else.
type lentBody struct {
	mu    sync.Mutex
	r     io.ReadCloser
	ended bool // guarded by mu
}

var errTakenBack = errors.New("the request has ended")

// Read implements io.Reader.
func (b *lentBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended {
		return 0, errTakenBack
	}
	return b.r.Read(p)
}

// Close implements io.Closer.
func (b *lentBody) Close() error { return b.r.Close() }

// takeBack makes sure that nobody reads the buffer any more.
func (b *lentBody) takeBack() {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
}

// learn takes the offset of the store's clock from a reply, and reports whether it is another one than before.
func (t *transport) learn(reply http.Header) (offset time.Duration, learned bool) {
	theirs, err := http.ParseTime(reply.Get("Date"))
	if err != nil {
		return 0, false
	}
	offset = theirs.Sub(t.now()).Round(time.Second)
	before := time.Duration(t.skew.Swap(int64(offset)))
	return offset, (offset - before).Abs() > time.Minute
}

// boundedBody is an answer that ends with an error when it is longer than any can be.
type boundedBody struct {
	in   io.ReadCloser
	left int
}

// bounded is a transport whose answers are boundedBody.
type bounded struct{ in http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (b bounded) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := b.in.RoundTrip(req)
	if err == nil {
		resp.Body = &boundedBody{in: resp.Body, left: answerMax}
	}
	return resp, err
}

var errEndless = fmt.Errorf("an answer of more than %d bytes", answerMax)

// Read implements io.Reader.
func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.in.Read(p[:min(len(p), b.left+1)])
	if n > b.left {
		return b.left, errEndless
	}
	b.left -= n
	return n, err
}

// Close implements io.Closer.
func (b *boundedBody) Close() error { return b.in.Close() }

func readAnswer(body io.Reader) (a answer) {
	b, _ := io.ReadAll(io.LimitReader(body, errorBodyMax)) // what can be read of it; the status is what counts
	a.length = len(b)
	if xml.Unmarshal(b, &a) == nil && a.Code != "" {
		a.Message = clip(a.Message)
		return a
	}
	return answer{text: clip(string(b)), length: len(b)}
}

// clip makes foreign text fit for one line of a message.
func clip(s string) string {
	const most = 200
	s = strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r <= ' ' || r == 0x7f || r == 0xfffd }), " ")
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "..."
	}
	return s
}

// credentialError says that there is no credential to sign with.
type credentialError struct{ err error }

// Error implements error.
func (e *credentialError) Error() string { return e.err.Error() }

// Unwrap returns the cause.
func (e *credentialError) Unwrap() error { return e.err }

// caFileMax is far above what all authorities of the world take.
const caFileMax = 16 << 20

func newBase(caFile string) (*http.Transport, error) {
	t := &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            (&net.Dialer{Timeout: dialTimeout}).DialContext,
		TLSHandshakeTimeout:    tlsTimeout,
		ResponseHeaderTimeout:  replyTimeout,
		IdleConnTimeout:        idleTimeout,
		MaxIdleConnsPerHost:    idlePerHost,
		MaxResponseHeaderBytes: headerMax,
		DisableCompression:     true,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12},
		TLSNextProto:           map[string]func(string, *tls.Conn) http.RoundTripper{}, // HTTP/1.1: one connection per request in flight
		WriteBufferSize:        64 << 10,
		ReadBufferSize:         64 << 10,
	}
	if caFile == "" {
		return t, nil
	}
	pem, err := vfs.ReadSmall(caFile, caFileMax)
	if err != nil {
		return nil, err
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s holds no certificate in PEM", caFile)
	}
	t.TLSClientConfig.RootCAs = pool
	return t, nil
}
