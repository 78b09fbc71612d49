package s3

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestRemoteCredentialSources asks services that answer as those of clouds and of MinIO do.
func TestRemoteCredentialSources(t *testing.T) {
	for _, name := range []string{"AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_ROLE_ARN"} {
		t.Setenv(name, "")
	}
	ends := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	keys := fmt.Sprintf("<Credentials><AccessKeyId>AK</AccessKeyId><SecretAccessKey>SK</SecretAccessKey><SessionToken>TK</SessionToken><Expiration>%s</Expiration></Credentials>", ends.Format(time.RFC3339))
	var asked []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		require.NoError(t, r.ParseForm())
		action := r.Form.Get("Action")
		asked = append(asked, strings.Join([]string{r.Method, r.URL.Path, action, r.Form.Get("WebIdentityToken"), r.Form.Get("RoleArn")}, " "))
		switch {
		case action == "AssumeRoleWithWebIdentity":
			fmt.Fprintf(w, `<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleWithWebIdentityResult>%s</AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>`, keys)
		case action == "AssumeRole":
			require.Contains(t, r.Header.Get("Authorization"), "Credential=own/")
			fmt.Fprintf(w, `<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult>%s</AssumeRoleResult></AssumeRoleResponse>`, keys)
		case r.URL.Path == "/latest/api/token":
			fmt.Fprint(w, "metadata-token")
		case r.URL.Path == "/latest/meta-data/iam/security-credentials/":
			fmt.Fprint(w, "role")
		case r.URL.Path == "/latest/meta-data/iam/security-credentials/role":
			fmt.Fprintf(w, `{"Code":"Success","AccessKeyId":"AK","SecretAccessKey":"SK","Token":"TK","Expiration":%q}`, ends.Format(time.RFC3339))
		default:
			http.NotFound(w, r)
		}
	}))
	defer srv.Close()
	token := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(token, []byte("jwt\n"), 0o600))
	want := secret{accessKey: "AK", secretKey: "SK", token: "TK"}
	for _, c := range []Credentials{
		{Source: "iam", STSEndpoint: srv.URL},
		{Source: "web-identity", STSEndpoint: srv.URL, TokenFile: token, RoleARN: "arn:role"},
		{Source: "assume-role", STSEndpoint: srv.URL, RoleARN: "arn:role", File: keyFile(t, "own", "own-secret").File},
	} {
		asked = nil
		got, err := fetch(t, c)
		require.NoError(t, err, c.Source)
		require.WithinDuration(t, ends, got.expires, time.Second, "%s: a key that ends is known to end", c.Source)
		got.expires = time.Time{}
		require.Equal(t, want, got, c.Source)
		switch c.Source {
		case "web-identity":
			require.Equal(t, []string{"POST / AssumeRoleWithWebIdentity jwt arn:role"}, asked)
		case "assume-role":
			require.Equal(t, []string{"POST / AssumeRole  arn:role"}, asked)
		}
		http.DefaultClient.CloseIdleConnections()
	}
}
