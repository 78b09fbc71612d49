package s3

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func fetch(t *testing.T, c Credentials) (secret, error) {
	t.Helper()
	f, err := c.source(&http.Client{Timeout: time.Minute}, "us-east-1")
	require.NoError(t, err)
	return f(context.Background())
}

func TestCredentialSources(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	want := secret{accessKey: "AK", secretKey: "SK", token: "TK"}

	got, err := fetch(t, Credentials{Source: "file", File: file("a.json", ` {"access_key":"AK","secret_key":"SK","session_token":"TK"}`)})
	require.NoError(t, err)
	require.Equal(t, want, got)

	shared := file("shared", "[default]\naws_access_key_id=X\naws_secret_access_key=Y\n[p]\naws_access_key_id=AK\naws_secret_access_key=SK\naws_session_token=TK\n")
	got, err = fetch(t, Credentials{Source: "file", File: shared, Profile: "p"})
	require.NoError(t, err)
	require.Equal(t, want, got)

	t.Setenv("STORE_ACCESS_KEY_ID", "AK")
	t.Setenv("STORE_SECRET_ACCESS_KEY", "SK")
	t.Setenv("STORE_SESSION_TOKEN", "TK")
	got, err = fetch(t, Credentials{Source: "env", EnvPrefix: "STORE"})
	require.NoError(t, err)
	require.Equal(t, want, got)

	for name, c := range map[string]Credentials{
		"no file":     {Source: "file", File: filepath.Join(dir, "absent")},
		"half a key":  {Source: "file", File: file("b.json", `{"access_key":"AK"}`)},
		"no JSON":     {Source: "file", File: file("c.json", `{"secret_key": "do-not-show`)},
		"no profile":  {Source: "file", File: shared, Profile: "q"},
		"empty env":   {Source: "env", EnvPrefix: "ABSENT"},
		"token":       {Source: "web-identity", STSEndpoint: "http://127.0.0.1:1", TokenFile: filepath.Join(dir, "absent")},
		"no endpoint": {Source: "assume-role", STSEndpoint: "http://127.0.0.1:1", File: filepath.Join(dir, "absent")},
	} {
		_, err := fetch(t, c)
		require.Error(t, err, name)
		require.NotContains(t, err.Error(), "do-not-show", name)
	}
	for _, c := range []Credentials{{}, {Source: "magic"}, {Source: "web-identity"}, {Source: "assume-role"}} {
		_, err := c.source(http.DefaultClient, "")
		require.Error(t, err, "%q", c.Source)
	}
}

// TestStatement41Renewal: a credential is renewed before it ends, by one fetch for all who wait.
func TestStatement41Renewal(t *testing.T) {
	ctx := context.Background()
	now := time.Unix(1_700_000_000, 0)
	var mu sync.Mutex
	clock := func() time.Time { mu.Lock(); defer mu.Unlock(); return now }
	pass := func(d time.Duration) { mu.Lock(); now = now.Add(d); mu.Unlock() }
	var fetched atomic.Int32
	var broken atomic.Bool
	k := &keyring{now: clock, fetch: func(context.Context) (secret, error) {
		if broken.Load() {
			return secret{}, errors.New("down")
		}
		n := fetched.Add(1)
		return secret{accessKey: string('a' + n - 1), secretKey: "s", expires: clock().Add(time.Hour)}, nil
	}}
	get := func() string {
		s, err := k.get(ctx)
		require.NoError(t, err)
		return s.accessKey
	}
	require.Equal(t, "a", get())
	pass(54 * time.Minute)
	require.Equal(t, "a", get())
	pass(2 * time.Minute)
	require.Equal(t, "b", get(), "renewed five minutes before its end")
	require.Equal(t, now.Add(time.Hour), k.expires())

	broken.Store(true)
	pass(56 * time.Minute)
	require.Equal(t, "b", get(), "still valid, though it can not be renewed")
	pass(5 * time.Minute)
	_, err := k.get(ctx)
	require.EqualError(t, err, "down")
	broken.Store(false)
	require.Equal(t, "c", get())

	canceled, cancel := context.WithCancel(ctx)
	cancel()
	broken.Store(true)
	pass(2 * time.Hour)
	_, err = k.get(canceled)
	require.Error(t, err)
}

// TestRefusalsDoNotStormTheSource: a remote source is asked for another credential once a minute.
func TestRefusalsDoNotStormTheSource(t *testing.T) {
	ctx := context.Background()
	now := time.Unix(1_700_000_000, 0)
	n := 0
	k := &keyring{rest: remoteRest, now: func() time.Time { return now }, fetch: func(context.Context) (secret, error) {
		n++
		return secret{accessKey: string(rune('a' + n - 1)), secretKey: "s"}, nil
	}}
	first, err := k.get(ctx)
	require.NoError(t, err)
	_, ok := k.another(ctx, first)
	require.False(t, ok, "it was fetched just now")
	now = now.Add(remoteRest)
	second, ok := k.another(ctx, first)
	require.True(t, ok)
	require.Equal(t, "b", second.accessKey)
	again, ok := k.another(ctx, first)
	require.True(t, ok, "a request that was signed with the old one")
	require.Equal(t, second, again)
	require.Equal(t, 2, n)
}
