package s3

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

const (
	unsignedPayload = "UNSIGNED-PAYLOAD"
	emptyPayload    = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" // SHA-256 of nothing
	stampFormat     = "20060102T150405Z"
)

// sign puts a version 4 signature on r, made at the time now. The library's own signer is not used: it knows only the clock of this machine, and frames
// bodies over plain http in a way that some servers store as data.
func sign(r *http.Request, s secret, region, payload string, now time.Time) {
	stamp := now.UTC().Format(stampFormat)
	r.Header.Set("X-Amz-Date", stamp)
	r.Header.Set("X-Amz-Content-Sha256", payload)
	if s.token != "" {
		r.Header.Set("X-Amz-Security-Token", s.token)
	}
	host := r.Host
	if host == "" {
		host = r.URL.Host
	}
	values := map[string]string{"host": host}
	for name, v := range r.Header {
		if name = strings.ToLower(name); strings.HasPrefix(name, "x-amz-") || name == "content-md5" || name == "range" || name == "if-none-match" {
			values[name] = strings.Join(strings.Fields(strings.Join(v, ",")), " ")
		}
	}
	names := make([]string, 0, len(values))
	for name := range values {
		names = append(names, name)
	}
	slices.Sort(names)
	var headers strings.Builder
	for _, name := range names {
		fmt.Fprintf(&headers, "%s:%s\n", name, values[name])
	}
	signed := strings.Join(names, ";")
	request := strings.Join([]string{r.Method, escape(r.URL.Path, true), canonicalQuery(r.URL.Query()), headers.String(), signed, payload}, "\n")
	scope := stamp[:8] + "/" + region + "/s3/aws4_request"
	text := strings.Join([]string{"AWS4-HMAC-SHA256", stamp, scope, hexSHA256([]byte(request))}, "\n")
	key := []byte("AWS4" + s.secretKey)
	for _, part := range []string{stamp[:8], region, "s3", "aws4_request", text} {
		key = hmacSHA256(key, part)
	}
	r.Header.Set("Authorization", fmt.Sprintf("AWS4-HMAC-SHA256 Credential=%s/%s, SignedHeaders=%s, Signature=%s", s.accessKey, scope, signed, hex.EncodeToString(key)))
}

func canonicalQuery(q url.Values) string {
	var pairs []string
	for name, values := range q {
		for _, v := range values {
			pairs = append(pairs, escape(name, false)+"="+escape(v, false))
		}
	}
	slices.Sort(pairs)
	return strings.Join(pairs, "&")
}

// escape is the URI encoding that signatures prescribe: everything but unreserved characters, and slashes only outside paths.
func escape(s string, path bool) string {
	var b strings.Builder
	for i := range len(s) {
		switch c := s[i]; {
		case 'A' <= c && c <= 'Z', 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '-', c == '_', c == '.', c == '~', path && c == '/':
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

func hmacSHA256(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}

func hexSHA256(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
