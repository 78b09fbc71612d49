package ledgerclient

import (
	"context"
	"errors"
	"iter"
)

// Client is a connection to a cluster. It may be used by any number of goroutines.
type Client struct{}

var errNotYet = errors.New("ledgerclient: under construction")

// Dial connects to the cluster whose metadata lies at metadataURI, such as "etcd://127.0.0.1:2379/ledgers" or
// "mem://name". Nil o means defaults.
func Dial(ctx context.Context, metadataURI string, o *Options) (*Client, error) { return nil, errNotYet }

// Close ends the client: open writers fail their pending adds and leave their ledgers open for recovery.
func (c *Client) Close() error { return errNotYet }

// Create makes a new ledger and returns its writer.
func (c *Client) Create(ctx context.Context, o CreateOptions) (*Writer, error) { return nil, errNotYet }

// Open opens a ledger for reading.
func (c *Client) Open(ctx context.Context, id LedgerID, o OpenOptions) (*Reader, error) {
	return nil, errNotYet
}

// Delete removes a ledger. Its bookies drop their copies some time later.
func (c *Client) Delete(ctx context.Context, id LedgerID) error { return errNotYet }

// Ledgers yields the ids of all ledgers, ascending. An error is the last thing it yields.
func (c *Client) Ledgers(ctx context.Context) iter.Seq2[LedgerID, error] {
	return func(yield func(LedgerID, error) bool) { yield(0, errNotYet) }
}

// Metadata returns the record of a ledger as it is stored now.
func (c *Client) Metadata(ctx context.Context, id LedgerID) (*Metadata, error) { return nil, errNotYet }

// Bookies returns the registered bookies, sorted by id.
func (c *Client) Bookies(ctx context.Context) ([]Bookie, error) { return nil, errNotYet }

// Writer is the one writer of a ledger.
type Writer struct{}

// ID returns the ledger's id.
func (w *Writer) ID() LedgerID { return 0 }

// Append adds an entry. It returns once an ack quorum holds the entry durably and every earlier entry is confirmed. An
// error, ctx's included, means that the outcome is unknown: the entry may still be confirmed, or be found by recovery.
func (w *Writer) Append(ctx context.Context, data []byte) (EntryID, error) { return 0, errNotYet }

// AppendAsync adds an entry and returns at once, unless Options.MaxPendingBytes is used up; then it waits for room. done
// runs in entry order, on one goroutine, holding no lock. data belongs to the writer until then.
func (w *Writer) AppendAsync(data []byte, done func(EntryID, error)) { done(0, errNotYet) }

// LastAddConfirmed returns the id of the last entry that readers may read.
func (w *Writer) LastAddConfirmed() EntryID { return InvalidEntry }

// Length returns the payload bytes of all confirmed entries.
func (w *Writer) Length() int64 { return 0 }

// Force makes every entry acknowledged before the call durable on all bookies of the ensemble.
func (w *Writer) Force(ctx context.Context) error { return errNotYet }

// Close waits for pending adds and seals the ledger at the last confirmed entry.
func (w *Writer) Close(ctx context.Context) error { return errNotYet }

// Reader reads a ledger.
type Reader struct{}

// ID returns the ledger's id.
func (r *Reader) ID() LedgerID { return 0 }

// Metadata returns the ledger's record as this reader knows it.
func (r *Reader) Metadata() *Metadata { return nil }

// LastAddConfirmed returns the id of the last entry that may be read: the last entry of a closed ledger.
func (r *Reader) LastAddConfirmed() EntryID { return InvalidEntry }

// Entries yields the entries first to last, never past the LAC: a higher last is cut off there. An error is the last thing
// it yields.
func (r *Reader) Entries(ctx context.Context, first, last EntryID) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) { yield(Entry{}, errNotYet) }
}

// Tail yields entries from the given one on and follows the LAC until the ledger is sealed.
func (r *Reader) Tail(ctx context.Context, from EntryID) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) { yield(Entry{}, errNotYet) }
}

// Close ends the reader.
func (r *Reader) Close() error { return errNotYet }
