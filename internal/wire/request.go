package wire

import "fmt"

// Request is one request of either form. The zero value of a field is what its absence means, except where a Has field
// stands beside it. Slices alias the packet it was decoded from.
type Request struct {
	Proto   Proto
	Version byte   // of the header; 0 to 2 are V2's, 3 is V3's. See VersionOK
	Op      Op     //
	RawOp   uint32 // the operation's number on the wire, for OpUnsupported
	Flags   Flags
	Invalid string // V3: why the request can not be served though its header could be read; "" = it can

	TxnID    uint64 // V3
	Priority uint32 // V3; 0 with HighPriority set is sent as 100

	Ledger, Entry int64 // V2 adds take them from the body; V3 adds carry them beside it, for the answer only
	Key           []byte
	HasKey        bool
	Body          []byte // of an add; the explicit-LAC body of a write LAC

	PreviousLAC    int64 // V3 read: its presence makes a long poll
	HasPreviousLAC bool
	TimeoutMillis  int64
	HasTimeout     bool
	Piggyback      bool  // V3 read
	WriteFlags     int32 // V3 add

	RequestID int64 // batch read
	MaxCount  int32
	MaxSize   int64

	LAC       int64 // write LAC: for logging, the body decides
	Requested int64 // bookie info

	AuthPlugin  string
	AuthPayload []byte

	Context []ContextPair // V3 request context, at most 16 pairs
}

// ContextPair is one pair of a V3 request context.
type ContextPair struct{ Key, Value []byte }

// reset makes r the zero request, but keeps the room of Context.
func (r *Request) reset() {
	c := r.Context[:0]
	*r = Request{Context: c}
}

// VersionOK reports whether the version of the request's header is one that a bookie serves. Authentication and
// START_TLS do not ask.
func (r *Request) VersionOK() bool {
	if r.Proto == V3 {
		return r.Version == byte(V3)
	}
	return r.Version <= byte(V2)
}

// MeansOther reports whether the request's context names another bookie than id.
func (r *Request) MeansOther(id string) bool {
	for _, c := range r.Context {
		if string(c.Key) == ContextBookieID && string(c.Value) != id {
			return true
		}
	}
	return false
}

// LongPoll reports whether the request is a read that waits for the LAC to move. A fencing read never is.
func (r *Request) LongPoll() bool {
	return r.Op == OpRead && r.HasPreviousLAC && r.Flags&Fence == 0
}

// Answer sets resp to the answer to r with the given code: form, operation, ids and correlation are r's, everything
// else is empty.
func (r *Request) Answer(resp *Response, c Code) {
	entries := resp.Entries[:0]
	*resp = Response{
		Proto: r.Proto, Version: r.Version, Op: r.Op, RawOp: r.RawOp, Code: c, TxnID: r.TxnID,
		Ledger: r.Ledger, Entry: r.Entry, RequestID: r.RequestID, Entries: entries,
	}
}

// Decoder decodes the requests of one connection. It remembers whether the connection has turned to V2, which is for
// good: the legal sequences are V3* V2*. The zero value is ready.
type Decoder struct{ v2 bool }

// Request decodes packet into r, overwriting all of it. It fails with *FormatError where the connection should be
// closed without an answer.
func (d *Decoder) Request(packet []byte, r *Request) error {
	r.reset()
	if len(packet) == 0 {
		return malformed("packet", "it is empty")
	}
	if packet[0] == headerTag {
		if d.v2 {
			return malformed("V2 request", "a V3 packet on a connection that has turned to V2")
		}
		return decodeRequestV3(packet, r)
	}
	d.v2 = true
	return decodeRequestV2(packet, r)
}

// AppendRequest appends r as a frame, length included. It encodes what it is given: a V2 add needs a key of
// MasterKeySize bytes, and operations that a form does not have are refused with an error.
func AppendRequest(dst []byte, r *Request) ([]byte, error) {
	start := len(dst)
	dst = openFrame(dst)
	var err error
	switch r.Proto {
	case V3:
		dst = appendRequestV3(dst, r)
	case V2:
		dst, err = appendRequestV2(dst, r)
	default:
		err = fmt.Errorf("wire: no protocol %d", r.Proto)
	}
	if err != nil {
		return dst[:start], err
	}
	return closeFrame(dst, start), nil
}
