package objstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// Kind says what an error means for the caller.
type Kind uint8

// The kinds of error. "Retried" are those that a Target tries again by itself before it returns them.
const (
	KindUnknown     Kind = iota // not an error of this package
	KindNotFound                // the store says there is no such object; reads: shard missing
	KindNoUpload                // the store says there is no such upload: expired, aborted or completed
	KindExists                  // an object is there already and IfAbsent was asked for; or the store saw a concurrent conditional request
	KindRange                   // the object ends before the range does: it is shorter than it should be
	KindChecksum                // the store got other bytes than the checksum says; retried twice
	KindSize                    // the store announced or kept another number of bytes than was written or asked for; what it returns can not be trusted
	KindThrottled               // the store asks to slow down; retried
	KindTransient               // connection broken, time-out, server error; retried
	KindUnreachable             // no connection at all: name, port, refused; retried
	KindCircuitOpen             // not sent: the target failed too often just now; comes back by itself
	KindDenied                  // the credential is valid but may not do this
	KindCredentials             // the store does not know the credential, or the signature does not match its secret
	KindExpired                 // the credential has run out and could not be renewed
	KindBucket                  // there is no such bucket
	KindRegion                  // the bucket is in another region, or the endpoint is another region's
	KindClock                   // clocks of store and client are too far apart
	KindScheme                  // http spoken to an https port or the other way round
	KindCertificate             // the server's certificate is not trusted or names another host
	KindFull                    // the store has no room or the quota is used up; write-down
	KindArchived                // the object is in a storage class that has to be restored before it can be read
	KindMisuse                  // the store or this package refuses the request as such; never retried
	KindForeign                 // what answered is not an object store, or what is stored is not ours
	KindCanceled                // the caller's context ended
	kinds
)

// kindNames are label values of metrics and words of messages.
var kindNames = [kinds]string{
	KindUnknown: "unknown", KindNotFound: "not_found", KindNoUpload: "no_upload", KindExists: "exists", KindRange: "range", KindChecksum: "checksum",
	KindSize: "size", KindThrottled: "throttled", KindTransient: "transient", KindUnreachable: "unreachable", KindCircuitOpen: "circuit_open",
	KindDenied: "denied", KindCredentials: "credentials", KindExpired: "expired", KindBucket: "bucket", KindRegion: "region", KindClock: "clock",
	KindScheme: "scheme", KindCertificate: "certificate", KindFull: "full", KindArchived: "archived", KindMisuse: "misuse", KindForeign: "foreign",
	KindCanceled: "canceled",
}

// String returns the kind's name as metrics spell it.
func (k Kind) String() string {
	if k >= kinds {
		return kindNames[KindUnknown]
	}
	return kindNames[k]
}

// Retriable says that the same request may succeed a little later without anybody changing anything.
func (k Kind) Retriable() bool {
	switch k {
	case KindThrottled, KindTransient, KindUnreachable, KindCircuitOpen:
		return true
	}
	return false
}

// Gone says that the object, or the upload, or the bytes asked for, are not there: on a read the shard counts as missing.
func (k Kind) Gone() bool { return k == KindNotFound || k == KindNoUpload || k == KindRange }

// Setup says that nothing will work at this target until an operator has changed a setting.
func (k Kind) Setup() bool {
	switch k {
	case KindDenied, KindCredentials, KindExpired, KindBucket, KindRegion, KindClock, KindScheme, KindCertificate, KindForeign:
		return true
	}
	return false
}

// Error is every error of a Store. Its message names the target, the request and, where somebody has to act, what to change.
type Error struct {
	Kind   Kind
	Target string // target id, set by Target
	Op     Op
	Key    string // object key; empty for requests without one
	Status int    // HTTP status, if there was an answer
	Code   string // the store's own code, if it sent one
	Hint   string // what to change, if an operator has to
	// MaybeDone says that the request was sent and its outcome is unknown.
	MaybeDone bool
	Err       error // cause
}

// Error implements error.
func (e *Error) Error() string {
	var b strings.Builder
	if e.Target != "" {
		fmt.Fprintf(&b, "target %s: ", e.Target)
	}
	b.WriteString(string(e.Op))
	if e.Key != "" {
		fmt.Fprintf(&b, " %s", e.Key)
	}
	fmt.Fprintf(&b, ": %s", strings.ReplaceAll(e.Kind.String(), "_", " "))
	switch {
	case e.Code != "" && e.Status != 0:
		fmt.Fprintf(&b, " (%d %s)", e.Status, e.Code)
	case e.Status != 0:
		fmt.Fprintf(&b, " (%d)", e.Status)
	}
	if e.Err != nil {
		fmt.Fprintf(&b, ": %v", e.Err)
	}
	if e.Hint != "" {
		fmt.Fprintf(&b, "; %s", e.Hint)
	}
	return b.String()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// KindOf returns the kind of an error of a Store, KindCanceled for an ended context, KindUnknown for anything else and for nil.
func KindOf(err error) Kind {
	var e *Error
	switch {
	case errors.As(err, &e):
		return e.Kind
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return KindCanceled
	}
	return KindUnknown
}

// IsNotFound says that the store answered that there is no such object.
func IsNotFound(err error) bool { return KindOf(err) == KindNotFound }

// Unclear says that the request of this error may have happened all the same, or may yet.
func Unclear(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.MaybeDone
}

// Op names a request, as metrics and messages spell it.
type Op string

// The requests of a Store.
const (
	OpPut      Op = "put"
	OpGet      Op = "get"
	OpHead     Op = "head"
	OpDelete   Op = "delete"
	OpList     Op = "list"
	OpCreate   Op = "create_upload"
	OpPart     Op = "put_part"
	OpComplete Op = "complete_upload"
	OpAbort    Op = "abort_upload"
	OpUploads  Op = "list_uploads"
)
