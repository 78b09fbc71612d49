//go:build interop

package interop

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/ledgerclient"
)

const password = "secret"

// Errors that both clients know, by our names.
var (
	errFenced   = ledgerclient.ErrFenced
	errNoLedger = ledgerclient.ErrNoSuchLedger
	// errUnsupported is what a client says that does not have a feature.
	errUnsupported = errors.New("not a feature of this client")
)

// client is one of the two clients, on one fleet.
type client interface {
	name() string
	create(spec ledgerSpec) (writer, error)
	open(id int64, digest string, recover bool) (reader, error)
	remove(id int64) error
}

type ledgerSpec struct {
	ensemble, write, ack int
	digest               string
	deferred             bool
}

// writer writes a ledger with content that follows from its id.
type writer interface {
	id() int64
	append(n, size int) (last, lac int64, err error)
	force() (lac int64, err error)
	close() error
}

type reader interface {
	info() (lac, length int64, closed bool, err error)
	lac() (int64, error) // asks the bookies
	read(first, last int64) (n int, sum string, err error)
	batch(first int64, n int, bytes int64) (int, string, error)
	poll(entry int64, wait time.Duration) func() (got int64, sum string, err error)
	forget() error
}

// entry returns the content of an entry, as InteropClient.java makes it too.
func entry(ledger, entry int64, size int) []byte {
	b := make([]byte, size+int(entry%5))
	for i := range b {
		b[i] = byte(7*ledger + 13*entry + 31*int64(i))
	}
	return b
}

func add(h hash.Hash, id int64, data []byte) {
	_ = binary.Write(h, binary.BigEndian, id)
	h.Write(data)
}

// want is the sum over entries first to last.
func want(ledger, first, last int64, size int) string {
	h := sha256.New()
	for e := first; e <= last; e++ {
		add(h, e, entry(ledger, e, size))
	}
	return hex.EncodeToString(h.Sum(nil))
}

func lengthOf(last int64, size int) int64 {
	n := int64(0)
	for e := int64(0); e <= last; e++ {
		n += int64(size) + e%5
	}
	return n
}

// javaClient is Apache's client in one JVM.
type javaClient struct {
	j     *javaProgram
	as    string
	proto string
}

func connectJava(t testing.TB, j *javaProgram, f *fleet, proto string) *javaClient {
	c := &javaClient{j: j, as: j.newName("client"), proto: proto}
	_, err := j.do("client", c.as, f.uri, proto)
	require.NoError(t, err)
	t.Cleanup(func() { _, _ = j.do("disconnect", c.as) })
	return c
}

func (c *javaClient) name() string { return "java " + c.j.version + " " + c.proto }

// known turns codes of Apache's client into our errors.
func known(err error) error {
	var e *javaError
	if errors.As(err, &e) {
		switch e.code {
		case -101, -11: // LedgerFencedException, LedgerClosedException
			return fmt.Errorf("%w: %w", errFenced, err)
		case -7, -25: // NoSuchLedgerExists, ...OnMetadataServer
			return fmt.Errorf("%w: %w", errNoLedger, err)
		}
	}
	return err
}

func (c *javaClient) create(s ledgerSpec) (writer, error) {
	if s.deferred && c.proto == "v2" {
		return nil, errUnsupported // the V2 protocol has no flag for it
	}
	w := &javaWriter{j: c.j, as: c.j.newName("w")}
	flags := "-"
	if s.deferred {
		flags = "deferred"
	}
	v, err := c.j.do("create", c.as, w.as, s.ensemble, s.write, s.ack, s.digest, password, flags)
	if err != nil {
		return nil, known(err)
	}
	w.ledger, err = strconv.ParseInt(v[0], 10, 64)
	return w, err
}

func (c *javaClient) open(id int64, digest string, recover bool) (reader, error) {
	r := &javaReader{j: c.j, as: c.j.newName("r"), proto: c.proto}
	_, err := c.j.do("open", c.as, r.as, id, digest, password, recover)
	return r, known(err)
}

func (c *javaClient) remove(id int64) error {
	_, err := c.j.do("delete", c.as, id)
	return known(err)
}

type javaWriter struct {
	j      *javaProgram
	as     string
	ledger int64
}

func (w *javaWriter) id() int64 { return w.ledger }

func (w *javaWriter) append(n, size int) (int64, int64, error) {
	v, err := w.j.do("append", w.as, n, size)
	if err != nil {
		return -1, -1, known(err)
	}
	return pair(v)
}

func pair(v []string) (a, b int64, err error) {
	if len(v) < 2 {
		return 0, 0, fmt.Errorf("%d values instead of 2", len(v))
	}
	if a, err = strconv.ParseInt(v[0], 10, 64); err == nil {
		b, err = strconv.ParseInt(v[1], 10, 64)
	}
	return a, b, err
}

func (w *javaWriter) force() (int64, error) {
	v, err := w.j.do("force", w.as)
	if err != nil {
		return 0, known(err)
	}
	return strconv.ParseInt(v[0], 10, 64)
}

func (w *javaWriter) close() error {
	_, err := w.j.do("close", w.as)
	return known(err)
}

type javaReader struct {
	j     *javaProgram
	as    string
	proto string
}

func (r *javaReader) info() (int64, int64, bool, error) {
	v, err := r.j.do("info", r.as)
	if err != nil {
		return 0, 0, false, known(err)
	}
	lac, length, err := pair(v)
	return lac, length, v[2] == "true", err
}

func (r *javaReader) lac() (int64, error) {
	v, err := r.j.do("lac", r.as)
	if err != nil {
		return 0, known(err)
	}
	return strconv.ParseInt(v[0], 10, 64)
}

func counted(v []string, err error) (int, string, error) {
	if err != nil {
		return 0, "", known(err)
	}
	n, err := strconv.Atoi(v[0])
	return n, v[1], err
}

func (r *javaReader) read(first, last int64) (int, string, error) {
	return counted(r.j.do("read", r.as, first, last))
}

func (r *javaReader) batch(first int64, n int, bytes int64) (int, string, error) {
	got, sum, err := counted(r.j.do("batch", r.as, first, n, bytes))
	if err != nil && strings.Contains(err.Error(), "Unsupported batch read entry operation for v3") {
		return 0, "", fmt.Errorf("%w: %w", errUnsupported, err)
	}
	return got, sum, err
}

func (r *javaReader) poll(e int64, wait time.Duration) func() (int64, string, error) {
	_, err := r.j.do("poll", r.as, e, wait.Milliseconds())
	return func() (int64, string, error) {
		if err != nil {
			return -1, "", known(err)
		}
		v, err := r.j.do("polled", r.as)
		if err != nil {
			return -1, "", known(err)
		}
		_, got, err := pair(v)
		if err == nil && got < 0 && r.proto == "v2" {
			return -1, "", errUnsupported // the V2 protocol has no long poll: Apache's client answers without waiting
		}
		return got, v[2], err
	}
}

func (r *javaReader) forget() error {
	_, err := r.j.do("forget", r.as)
	return err
}

// goClient is ours.
type goClient struct{ c *ledgerclient.Client }

func (c *goClient) name() string { return "go" }

func within() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), time.Minute)
}

var digests = map[string]ledgerclient.DigestType{
	"CRC32": ledgerclient.DigestCRC32, "MAC": ledgerclient.DigestHMAC, "CRC32C": ledgerclient.DigestCRC32C, "DUMMY": ledgerclient.DigestDummy,
}

func (c *goClient) create(s ledgerSpec) (writer, error) {
	ctx, cancel := within()
	defer cancel()
	w, err := c.c.Create(ctx, ledgerclient.CreateOptions{
		Quorum: ledgerclient.Quorum{Ensemble: s.ensemble, Write: s.write, Ack: s.ack},
		Digest: digests[s.digest], Password: []byte(password), DeferredSync: s.deferred,
	})
	if err != nil {
		return nil, err
	}
	return &goWriter{w: w}, nil
}

func (c *goClient) open(id int64, _ string, recover bool) (reader, error) {
	ctx, cancel := within()
	defer cancel()
	r, err := c.c.Open(ctx, ledgerclient.LedgerID(id), ledgerclient.OpenOptions{Recover: recover, Password: []byte(password)})
	if err != nil {
		return nil, err
	}
	return &goReader{c: c, r: r}, nil
}

func (c *goClient) remove(id int64) error {
	ctx, cancel := within()
	defer cancel()
	return c.c.Delete(ctx, ledgerclient.LedgerID(id))
}

type goWriter struct {
	w    *ledgerclient.Writer
	next int64
}

func (w *goWriter) id() int64 { return int64(w.w.ID()) }

func (w *goWriter) append(n, size int) (int64, int64, error) {
	type ack struct {
		id  ledgerclient.EntryID
		err error
	}
	acks := make(chan ack, n)
	for range n {
		w.w.AppendAsync(entry(w.id(), w.next, size), func(id ledgerclient.EntryID, err error) { acks <- ack{id, err} })
		w.next++
	}
	last := int64(-1)
	for range n {
		a := <-acks
		if a.err != nil {
			return last, int64(w.w.LastAddConfirmed()), a.err
		}
		last = int64(a.id)
	}
	return last, int64(w.w.LastAddConfirmed()), nil
}

func (w *goWriter) force() (int64, error) {
	ctx, cancel := within()
	defer cancel()
	err := w.w.Force(ctx)
	return int64(w.w.LastAddConfirmed()), err
}

func (w *goWriter) close() error {
	ctx, cancel := within()
	defer cancel()
	return w.w.Close(ctx)
}

type goReader struct {
	c *goClient
	r *ledgerclient.Reader
}

func (r *goReader) info() (int64, int64, bool, error) {
	return int64(r.r.LastAddConfirmed()), r.r.Metadata().Length, r.r.Sealed(), nil
}

func (r *goReader) lac() (int64, error) {
	ctx, cancel := within()
	defer cancel()
	n, err := r.c.c.Open(ctx, r.r.ID(), ledgerclient.OpenOptions{Password: []byte(password)})
	if err != nil {
		return 0, err
	}
	old := r.r
	r.r = n // a reader reads up to the LAC that it knows
	return int64(n.LastAddConfirmed()), old.Close()
}

func (r *goReader) read(first, last int64) (int, string, error) {
	ctx, cancel := within()
	defer cancel()
	h := sha256.New()
	n := 0
	for e, err := range r.r.Entries(ctx, ledgerclient.EntryID(first), ledgerclient.EntryID(last)) {
		if err != nil {
			return n, "", err
		}
		add(h, int64(e.ID), e.Data)
		n++
	}
	return n, hex.EncodeToString(h.Sum(nil)), nil
}

// batch reads with the batch requests that Entries makes by itself, up to n entries that exist.
func (r *goReader) batch(first int64, n int, _ int64) (int, string, error) {
	return r.read(first, min(first+int64(n)-1, int64(r.r.LastAddConfirmed())))
}

func (r *goReader) poll(e int64, wait time.Duration) func() (int64, string, error) {
	type result struct {
		got int64
		sum string
		err error
	}
	ch := make(chan result, 1)
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	go func() {
		defer cancel()
		for got, err := range r.r.Tail(ctx, ledgerclient.EntryID(e)) {
			if err != nil {
				ch <- result{-1, "", err}
				return
			}
			h := sha256.New()
			add(h, int64(got.ID), got.Data)
			ch <- result{int64(got.ID), hex.EncodeToString(h.Sum(nil)), nil}
			return
		}
		ch <- result{-1, "", nil}
	}()
	return func() (int64, string, error) {
		x := <-ch
		return x.got, x.sum, x.err
	}
}

func (r *goReader) forget() error { return r.r.Close() }
