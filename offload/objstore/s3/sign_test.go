package s3

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestSignatureOfThePublishedExamples checks the examples of the documentation of signature version 4 for S3.
func TestSignatureOfThePublishedExamples(t *testing.T) {
	key := secret{accessKey: "AKIAIOSFODNN7EXAMPLE", secretKey: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"}
	now := time.Date(2013, 5, 24, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct{ url, rng, want string }{
		{"https://examplebucket.s3.amazonaws.com/test.txt", "bytes=0-9", "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"},
		{"https://examplebucket.s3.amazonaws.com/?lifecycle", "", "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"},
		{"https://examplebucket.s3.amazonaws.com/?max-keys=2&prefix=J", "", "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"},
	} {
		r, err := http.NewRequest(http.MethodGet, c.url, nil)
		require.NoError(t, err)
		if c.rng != "" {
			r.Header.Set("Range", c.rng)
		}
		sign(r, key, "us-east-1", emptyPayload, now)
		_, got, _ := strings.Cut(r.Header.Get("Authorization"), "Signature=")
		require.Equal(t, c.want, got, c.url)
	}
}

func TestTheSecretIsNowhere(t *testing.T) {
	key := secret{accessKey: "AK", secretKey: "do-not-show", token: "nor-this"}
	r, err := http.NewRequest(http.MethodGet, "https://host/b/k", nil)
	require.NoError(t, err)
	sign(r, key, "r", emptyPayload, time.Now())
	require.Equal(t, "nor-this", r.Header.Get("X-Amz-Security-Token"), "the token is sent")
	require.NotContains(t, r.Header.Get("Authorization"), "do-not-show")
	require.Equal(t, "access key AK", key.String())
	require.NotContains(t, key.GoString(), "do-not-show")
}
