package s3

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/minio/minio-go/v7/pkg/credentials"
	"golang.org/x/sync/singleflight"

	"github.com/binderylog/bindery/internal/vfs"
)

// Credentials say where a target's access key comes from. They are never logged and stand in no record.
type Credentials struct {
	// Source is "file", "env", "iam", "web-identity" or "assume-role".
	Source string
	// File of source file: JSON with access_key, secret_key and optionally session_token and expires; or, if it does not begin with a brace, the
	// shared AWS file, of which Profile is used. Empty: the shared AWS file at its usual place. Read again when the store refuses what it held. For
	// assume-role: the key that may assume the role.
	File    string
	Profile string // default "default"
	// EnvPrefix of source env: PREFIX_ACCESS_KEY_ID, PREFIX_SECRET_ACCESS_KEY, PREFIX_SESSION_TOKEN; default AWS.
	EnvPrefix string
	// STSEndpoint, RoleARN: web-identity and assume-role. For iam STSEndpoint is the metadata endpoint, empty for the usual ones.
	STSEndpoint string
	RoleARN     string
	TokenFile   string // web-identity
}

// renewBefore is how long before its end a credential is renewed; a request takes at most as long.
const renewBefore = 5 * time.Minute

// secret is an access key. It has no String method that shows it.
type secret struct {
	accessKey, secretKey, token string
	expires                     time.Time // zero: never
}

// String keeps secrets out of messages.
func (s secret) String() string { return "access key " + s.accessKey }

// GoString implements fmt.GoStringer for the same reason.
func (s secret) GoString() string { return s.String() }

// renewPatience is how long a request waits for a new credential while the old one is still valid: the service that gives them may not answer
// at all, and then the requests of the last minutes must not wait with it.
const renewPatience = 2 * time.Second

// keyring keeps the current credential and renews it.
type keyring struct {
	fetch func(context.Context) (secret, error)
	now   func() time.Time
	one   singleflight.Group

	// rest is how long after a fetch a refusal is not answered by another one: other services should not be asked for each request that is denied here.
	rest time.Duration

	mu      sync.Mutex
	cur     secret    // guarded by mu
	have    bool      // guarded by mu
	fetched time.Time // guarded by mu
}

// remote sources rest for this long.
const remoteRest = time.Minute

// get returns a credential that does not end soon, or the current one while it is valid and can not be renewed.
func (k *keyring) get(ctx context.Context) (secret, error) {
	k.mu.Lock()
	cur, have := k.cur, k.have
	k.mu.Unlock()
	if have && (cur.expires.IsZero() || k.now().Before(cur.expires.Add(-renewBefore))) {
		return cur, nil
	}
	if !have || !k.now().Before(cur.expires) {
		return k.renew(ctx)
	}
	wait, cancel := context.WithTimeout(ctx, renewPatience)
	defer cancel()
	if s, err := k.renew(wait); err == nil {
		return s, nil
	}
	return cur, ctx.Err()
}

// renew fetches the credential anew; callers at the same time share one fetch.
func (k *keyring) renew(ctx context.Context) (secret, error) {
	ch := k.one.DoChan("", func() (any, error) {
		s, err := k.fetch(context.WithoutCancel(ctx)) // bounded by the client's own time-out
		if err == nil {
			k.mu.Lock()
			k.cur, k.have, k.fetched = s, true, k.now()
			k.mu.Unlock()
		}
		return s, err
	})
	select {
	case r := <-ch:
		s, _ := r.Val.(secret)
		return s, r.Err
	case <-ctx.Done():
		return secret{}, ctx.Err()
	}
}

// another returns a credential in place of one that was refused.
func (k *keyring) another(ctx context.Context, refused secret) (secret, bool) {
	k.mu.Lock()
	cur, resting := k.cur, k.rest > 0 && k.now().Sub(k.fetched) < k.rest
	k.mu.Unlock()
	if cur != refused { // somebody else has done it
		return cur, true
	}
	if resting {
		return cur, false
	}
	s, err := k.renew(ctx)
	return s, err == nil && s != refused
}

// expires returns when the current credential ends; zero: never, or none yet.
func (k *keyring) expires() time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.cur.expires
}

// source returns what fetches a credential.
func (c Credentials) source(client *http.Client, region string) (func(context.Context) (secret, error), error) {
	switch c.Source {
	case "file":
		return c.fromFile(client)
	case "env":
		return c.fromEnv, nil
	case "iam":
		return func(ctx context.Context) (secret, error) {
			return retrieve(ctx, client, &credentials.IAM{Client: client, Endpoint: c.STSEndpoint, Region: region})
		}, nil
	case "web-identity":
		return c.fromWebIdentity(client)
	case "assume-role":
		return c.fromRole(client, region)
	case "":
		return nil, errors.New("no credentials: set their source to file, env, iam, web-identity or assume-role")
	}
	return nil, fmt.Errorf("credentials source %q; file, env, iam, web-identity or assume-role", c.Source)
}

type provider interface {
	RetrieveWithCredContext(cc *credentials.CredContext) (credentials.Value, error)
}

func retrieve(ctx context.Context, client *http.Client, p provider) (secret, error) {
	v, err := p.RetrieveWithCredContext(&credentials.CredContext{Client: client, Context: ctx})
	if err != nil {
		return secret{}, err
	}
	s := secret{accessKey: v.AccessKeyID, secretKey: v.SecretAccessKey, token: v.SessionToken, expires: v.Expiration}
	return s, s.complete()
}

func (s secret) complete() error {
	if s.accessKey == "" || s.secretKey == "" {
		return errors.New("access key or secret key is empty")
	}
	return nil
}

func (c Credentials) fromEnv(context.Context) (secret, error) {
	prefix := c.EnvPrefix
	if prefix == "" {
		prefix = "AWS"
	}
	s := secret{accessKey: os.Getenv(prefix + "_ACCESS_KEY_ID"), secretKey: os.Getenv(prefix + "_SECRET_ACCESS_KEY"), token: os.Getenv(prefix + "_SESSION_TOKEN")}
	if err := s.complete(); err != nil {
		return secret{}, fmt.Errorf("%s_ACCESS_KEY_ID, %s_SECRET_ACCESS_KEY in the environment: %w", prefix, prefix, err)
	}
	return s, nil
}

const credentialFileMax = 64 << 10

func (c Credentials) fromFile(client *http.Client) (func(context.Context) (secret, error), error) {
	profile := c.Profile
	if profile == "" {
		profile = "default"
	}
	return func(ctx context.Context) (secret, error) {
		if c.File != "" {
			in, err := os.Stat(c.File)
			if err != nil {
				return secret{}, err
			}
			if !in.Mode().IsRegular() {
				return secret{}, fmt.Errorf("%s is no regular file; a credential is read again whenever it is renewed", c.File)
			}
			b, err := vfs.ReadSmall(c.File, credentialFileMax)
			if err != nil {
				return secret{}, err
			}
			if strings.HasPrefix(strings.TrimSpace(string(b)), "{") {
				return decodeJSON(c.File, b)
			}
		}
		s, err := retrieve(ctx, client, &credentials.FileAWSCredentials{Filename: c.File, Profile: profile})
		if err != nil {
			return secret{}, fmt.Errorf("credentials of profile %s: %w", profile, err)
		}
		return s, nil
	}, nil
}

func decodeJSON(name string, b []byte) (secret, error) {
	var f struct {
		AccessKey    string    `json:"access_key"`
		SecretKey    string    `json:"secret_key"`
		SessionToken string    `json:"session_token"`
		Expires      time.Time `json:"expires"`
	}
	if err := json.Unmarshal(b, &f); err != nil {
		return secret{}, fmt.Errorf("%s: not the JSON of a credential", name) // the cause may quote a secret
	}
	s := secret{accessKey: f.AccessKey, secretKey: f.SecretKey, token: f.SessionToken, expires: f.Expires}
	if err := s.complete(); err != nil {
		return secret{}, fmt.Errorf("%s: %w", name, err)
	}
	return s, nil
}

func (c Credentials) fromWebIdentity(client *http.Client) (func(context.Context) (secret, error), error) {
	if c.TokenFile == "" || c.STSEndpoint == "" {
		return nil, errors.New("credentials of source web-identity need a token file and an STS endpoint")
	}
	return func(ctx context.Context) (secret, error) {
		return retrieve(ctx, client, &credentials.STSWebIdentity{
			Client: client, STSEndpoint: c.STSEndpoint, RoleARN: c.RoleARN,
			GetWebIDTokenExpiry: func() (*credentials.WebIdentityToken, error) {
				b, err := vfs.ReadSmall(c.TokenFile, credentialFileMax)
				if err != nil {
					return nil, err
				}
				return &credentials.WebIdentityToken{Token: strings.TrimSpace(string(b))}, nil
			},
		})
	}, nil
}

func (c Credentials) fromRole(client *http.Client, region string) (func(context.Context) (secret, error), error) {
	if c.STSEndpoint == "" {
		return nil, errors.New("credentials of source assume-role need an STS endpoint")
	}
	own, err := c.fromFile(client)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (secret, error) {
		s, err := own(ctx)
		if err != nil {
			return secret{}, err
		}
		return retrieve(ctx, client, &credentials.STSAssumeRole{Client: client, STSEndpoint: c.STSEndpoint, Options: credentials.STSAssumeRoleOptions{
			AccessKey: s.accessKey, SecretKey: s.secretKey, SessionToken: s.token, Location: region, RoleARN: c.RoleARN, RoleSessionName: "bindery",
		}})
	}, nil
}
