package s3

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/offload/objstore"
)

// TestAListThatGoesRoundEnds: a server that gives the same page again and again, or a page with keys twice or out of order.
func TestAListThatGoesRoundEnds(t *testing.T) {
	page, more := "", false
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/xml")
		var b strings.Builder
		fmt.Fprintf(&b, "<?xml version=\"1.0\"?><ListBucketResult><Name>bucket</Name><IsTruncated>%v</IsTruncated><NextContinuationToken>same</NextContinuationToken>", more)
		for key := range strings.FieldsSeq(page) {
			fmt.Fprintf(&b, "<Contents><Key>%s</Key><LastModified>2026-01-02T03:04:05.000Z</LastModified><Size>1</Size></Contents>", key)
		}
		_, _ = fmt.Fprint(w, b.String()+"</ListBucketResult>")
	}))
	defer srv.Close()
	s := open(t, Options{Endpoint: srv.URL, Bucket: "bucket", AllowInsecure: true, Credentials: keyFile(t, "a", "b")})
	for _, c := range []struct {
		page, after string
		more        bool
		keys        int // -1: refused
	}{
		{"a b c", "", false, 3}, {"a b c", "b", false, 1}, {"a b c", "", true, -1}, {"a b c", "c", true, -1}, {"a a", "", false, -1}, {"b a", "", false, -1}, {"a", "", true, -1},
	} {
		page, more = c.page, c.more
		start := time.Now()
		list, err := s.List(t.Context(), "", c.after, 0)
		if c.keys >= 0 {
			require.NoError(t, err)
			require.Len(t, list, c.keys)
			continue
		}
		require.Equal(t, objstore.KindSize, objstore.KindOf(err), "%+v: %v", c, err)
		require.ErrorContains(t, err, "is listed behind")
		require.Less(t, time.Since(start), time.Minute)
	}
}
