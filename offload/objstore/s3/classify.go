package s3

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/binderylog/bindery/offload/objstore"
)

// codes says what a store's code means, whatever the HTTP status.
var codes = map[string]objstore.Kind{
	"NoSuchKey": objstore.KindNotFound, "NoSuchUpload": objstore.KindNoUpload, "NoSuchBucket": objstore.KindBucket,
	"InvalidBucketName": objstore.KindBucket, "NoSuchVersion": objstore.KindNotFound,

	"SlowDown": objstore.KindThrottled, "SlowDownRead": objstore.KindThrottled, "SlowDownWrite": objstore.KindThrottled, "RequestLimitExceeded": objstore.KindThrottled,
	"Throttling": objstore.KindThrottled, "ThrottlingException": objstore.KindThrottled, "TooManyRequests": objstore.KindThrottled, "BandwidthLimitExceeded": objstore.KindThrottled,

	"InternalError": objstore.KindTransient, "RequestTimeout": objstore.KindTransient, "ServiceUnavailable": objstore.KindTransient,
	"IncompleteBody": objstore.KindTransient, "OperationAborted": objstore.KindTransient,

	"BadDigest": objstore.KindChecksum, "XAmzContentChecksumMismatch": objstore.KindChecksum, "XAmzContentSHA256Mismatch": objstore.KindChecksum, "InvalidDigest": objstore.KindChecksum,

	"PreconditionFailed": objstore.KindExists, "ConditionalRequestConflict": objstore.KindExists, "InvalidRange": objstore.KindRange,

	"AccessDenied": objstore.KindDenied, "AllAccessDisabled": objstore.KindDenied, "AccountProblem": objstore.KindDenied, "InvalidObjectState": objstore.KindArchived,

	"InvalidAccessKeyId": objstore.KindCredentials, "SignatureDoesNotMatch": objstore.KindCredentials, "InvalidSecurity": objstore.KindCredentials,
	"XAdminUserNotFound": objstore.KindCredentials,
	"ExpiredToken":       objstore.KindExpired, "InvalidToken": objstore.KindExpired, "ExpiredTokenException": objstore.KindExpired, "TokenRefreshRequired": objstore.KindExpired,

	"RequestTimeTooSkewed": objstore.KindClock, "RequestExpired": objstore.KindClock,

	"AuthorizationHeaderMalformed": objstore.KindRegion, "InvalidRegion": objstore.KindRegion, "PermanentRedirect": objstore.KindRegion, "TemporaryRedirect": objstore.KindRegion,
	"IllegalLocationConstraintException": objstore.KindRegion,

	"QuotaExceeded": objstore.KindFull, "XMinioStorageFull": objstore.KindFull, "XMinioAdminBucketQuotaExceeded": objstore.KindFull, "InsufficientStorage": objstore.KindFull,
	"StorageFull": objstore.KindFull, "EntityTooLarge": objstore.KindMisuse, "EntityTooSmall": objstore.KindMisuse, "InvalidPart": objstore.KindMisuse,
	"InvalidPartOrder": objstore.KindMisuse, "InvalidArgument": objstore.KindMisuse, "InvalidRequest": objstore.KindMisuse, "MalformedXML": objstore.KindMisuse,
	"KeyTooLongError": objstore.KindMisuse, "MethodNotAllowed": objstore.KindMisuse, "NotImplemented": objstore.KindMisuse,
	"ObjectParentIsFile": objstore.KindMisuse, "ExistingObjectIsDirectory": objstore.KindMisuse, "XMinioParentIsObject": objstore.KindMisuse, "XMinioInvalidObjectName": objstore.KindMisuse,
}

// statuses says what a status means without a code of the table above.
var statuses = map[int]objstore.Kind{
	http.StatusUnauthorized: objstore.KindCredentials, http.StatusForbidden: objstore.KindDenied, http.StatusNotFound: objstore.KindNotFound,
	http.StatusPreconditionFailed: objstore.KindExists, http.StatusRequestedRangeNotSatisfiable: objstore.KindRange, http.StatusTooManyRequests: objstore.KindThrottled,
	http.StatusRequestTimeout: objstore.KindTransient, http.StatusInsufficientStorage: objstore.KindFull, http.StatusServiceUnavailable: objstore.KindThrottled,
}

// classify makes the error of a request that failed from what crossed the wire, and from what the library says.
func (s *Store) classify(ctx context.Context, op objstore.Op, key string, x *exchange, err error) *objstore.Error {
	var ours *objstore.Error
	if errors.As(err, &ours) {
		return ours
	}
	e := &objstore.Error{Op: op, Key: key, Status: x.status}
	switch {
	case ctx.Err() != nil: // whatever it looks like, the caller ended it
		e.Kind, e.Err = objstore.KindCanceled, ctx.Err()
		e.MaybeDone = x.sent.Load() && changes(op)
	case x.err != nil:
		s.noAnswer(ctx, e, x)
	case x.status >= 300:
		s.refused(e, x)
	default: // a success whose body is cut, or says that it is none
		s.oddSuccess(e, x, err)
	}
	return e
}

func changes(op objstore.Op) bool {
	switch op {
	case objstore.OpGet, objstore.OpHead, objstore.OpList, objstore.OpUploads:
		return false
	}
	return true
}

// noAnswer classifies a request that got none.
func (s *Store) noAnswer(ctx context.Context, e *objstore.Error, x *exchange) {
	e.Err = x.err
	var (
		cred     *credentialError
		unknown  x509.UnknownAuthorityError
		host     x509.HostnameError
		invalid  x509.CertificateInvalidError
		verify   *tls.CertificateVerificationError
		record   tls.RecordHeaderError
		dns      *net.DNSError
		dial     *net.OpError
		notSent  = !x.sent.Load()
		plainTLS = strings.Contains(x.err.Error(), "server gave HTTP response to HTTPS client")
	)
	switch {
	case errors.As(x.err, &cred):
		e.Kind, e.Hint = objstore.KindCredentials, "set the target's credentials: "+s.o.Credentials.Source+" gives none"
	case plainTLS, errors.As(x.err, &record):
		e.Kind, e.Hint = objstore.KindScheme, "the server at "+s.o.Endpoint+" does not speak TLS: set the target's endpoint to http:// and allow_insecure, or to the server's TLS port"
	case errors.As(x.err, &unknown):
		e.Kind, e.Hint = objstore.KindCertificate, "set ca_file to the certificate of whoever signed the server's"
	case errors.As(x.err, &host):
		e.Kind, e.Hint = objstore.KindCertificate, "set the target's endpoint to a name that the certificate holds"
	case errors.As(x.err, &invalid), errors.As(x.err, &verify):
		e.Kind, e.Hint = objstore.KindCertificate, "renew the server's certificate, or set this machine's clock"
	case errors.As(x.err, &dns) && dns.IsNotFound:
		e.Kind, e.Hint = objstore.KindUnreachable, "no such host: correct the target's endpoint "+s.o.Endpoint
	case notSent && errors.As(x.err, &dial) && dial.Op == "dial":
		e.Kind = objstore.KindUnreachable
		if errors.Is(x.err, syscall.ECONNREFUSED) {
			e.Hint = "nothing listens at " + s.o.Endpoint + ": start the server, or correct the target's endpoint"
		}
	case s.speaksTLS(ctx):
		e.Kind, e.Hint = objstore.KindScheme, "the server at "+s.o.Endpoint+" speaks TLS: set the target's endpoint to https://"
	default:
		e.Kind, e.MaybeDone = objstore.KindTransient, !notSent && changes(e.Op)
	}
}

// speaksTLS finds out why a server that never answered over plain http hangs up: many that speak TLS say nothing else.
func (s *Store) speaksTLS(ctx context.Context) bool {
	u, err := url.Parse(s.o.Endpoint)
	if err != nil || u.Scheme != "http" || s.wire.answered.Load() {
		return false
	}
	host := u.Host
	if u.Port() == "" {
		host = net.JoinHostPort(u.Hostname(), "80")
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	c, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext(ctx, "tcp", host) //nolint:gosec // nothing is sent; only whether it is TLS matters
	if err != nil {
		return false
	}
	return c.Close() == nil
}

// refused classifies an answer that is no success.
func (s *Store) refused(e *objstore.Error, x *exchange) {
	a := x.answer
	code := a.Code
	if code == "" {
		code = x.reply.Get("X-Minio-Error-Code") // of answers that have no body
	}
	e.Code, e.Err = code, errors.New(a.text)
	if a.Message != "" {
		e.Err = errors.New(a.Message)
	}
	if e.Err.Error() == "" {
		e.Err = errors.New(http.StatusText(x.status))
	}
	kind, known := codes[code]
	switch {
	case known:
	case x.status >= 300 && x.status < 400:
		kind = objstore.KindRegion
	case x.status == http.StatusBadRequest && strings.Contains(a.text, "HTTP request to an HTTPS server"):
		kind = objstore.KindScheme
	case code == "" && a.length > 0, x.status == http.StatusNotFound && code != "": // not an error of S3, or none that says what is not found
		kind = objstore.KindForeign
		if x.status >= 500 || x.status == http.StatusTooManyRequests {
			kind = objstore.KindTransient // a proxy in between
		}
	default:
		if kind, known = statuses[x.status]; !known {
			kind = objstore.KindMisuse
			if x.status >= 500 {
				kind = objstore.KindTransient
			}
		}
	}
	e.Kind = kind
	e.MaybeDone = kind == objstore.KindTransient && changes(e.Op)
	s.hint(e, x)
}

// hint says what to change.
func (s *Store) hint(e *objstore.Error, x *exchange) {
	switch e.Kind {
	case objstore.KindBucket:
		e.Hint = fmt.Sprintf("there is no bucket %q at %s: create it, or correct the target's bucket", s.o.Bucket, s.o.Endpoint)
	case objstore.KindRegion:
		e.Hint = fmt.Sprintf("the target's region %q is not the bucket's: correct the target's region or endpoint", s.region)
		if r := regionOf(x); r != "" {
			e.Hint = fmt.Sprintf("set the target's region to %q; it is %q", r, s.region)
		}
	case objstore.KindCredentials:
		e.Hint = fmt.Sprintf("the store does not accept access key %q with its secret: correct the target's credentials (%s)", x.key.accessKey, s.o.Credentials.Source)
	case objstore.KindExpired:
		e.Hint = fmt.Sprintf("the credential has ended and %s gives no newer one", s.o.Credentials.Source)
	case objstore.KindDenied:
		e.Hint = fmt.Sprintf("access key %q may not do this in bucket %q: allow it to get, put, list, delete and abort uploads below the target's prefix", x.key.accessKey, s.o.Bucket)
	case objstore.KindClock:
		e.Hint = "set this machine's clock, or the store's"
		if theirs, err := http.ParseTime(x.reply.Get("Date")); err == nil {
			e.Hint = fmt.Sprintf("this machine's clock differs from the store's by %s: set it", theirs.Sub(s.wire.now()).Round(time.Second))
		}
	case objstore.KindScheme:
		e.Hint = "the server at " + s.o.Endpoint + " speaks TLS: set the target's endpoint to https://"
	case objstore.KindForeign:
		e.Hint = "what answers at " + s.o.Endpoint + " is not an S3 server: correct the target's endpoint"
	case objstore.KindFull:
		e.Hint = "make room in the store, or raise the bucket's quota"
	case objstore.KindArchived:
		e.Hint = "the object is in a storage class that has to be restored first: change the bucket's lifecycle rules"
	}
}

func regionOf(x *exchange) string {
	if x.answer.Region != "" {
		return x.answer.Region
	}
	if r := x.reply.Get("X-Amz-Bucket-Region"); r != "" {
		return r
	}
	// "the region 'x' is wrong; expecting 'y'"
	if _, rest, ok := strings.Cut(x.answer.Message, "expecting '"); ok {
		if r, _, ok := strings.Cut(rest, "'"); ok {
			return r
		}
	}
	return ""
}

// oddSuccess classifies a reply of status 200 that the library could not take.
func (s *Store) oddSuccess(e *objstore.Error, x *exchange, err error) {
	e.Err = err
	var resp minio.ErrorResponse
	if errors.As(err, &resp) && resp.Code != "" {
		if kind, known := codes[resp.Code]; known {
			e.Kind, e.Code, e.Err = kind, resp.Code, errors.New(clip(resp.Message))
			e.MaybeDone = kind == objstore.KindTransient && changes(e.Op)
			s.hint(e, x)
			return
		}
	}
	e.Kind, e.MaybeDone = objstore.KindTransient, changes(e.Op)
	if errors.Is(err, errEndless) {
		e.Kind = objstore.KindForeign
		s.hint(e, x)
	}
	if x.status == 0 { // the library refused before it sent anything
		e.Kind, e.MaybeDone = objstore.KindMisuse, false
	}
}
