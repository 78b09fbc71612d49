package driver

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"github.com/binderylog/bindery/internal/vfs"
	"github.com/binderylog/bindery/offload"
	"github.com/binderylog/bindery/offload/objstore"
	"github.com/binderylog/bindery/offload/objstore/s3"
)

// fileBytesMax bounds a file of targets.
const fileBytesMax = 1 << 20

// file is what a file of targets holds: [[target]] tables.
type file struct {
	Target []entry `toml:"target"`
}

// entry is one target in a file.
type entry struct {
	ID     string `toml:"id"`
	Domain string `toml:"domain"`
	Prefix string `toml:"prefix"`

	Dir    string `toml:"dir"`
	Create bool   `toml:"create"` // make the folder if it is missing or empty

	Endpoint      string      `toml:"endpoint"`
	Region        string      `toml:"region"`
	Bucket        string      `toml:"bucket"`
	VirtualHost   bool        `toml:"virtual_host"`
	AllowInsecure bool        `toml:"allow_insecure"`
	CAFile        string      `toml:"ca_file"`
	Checksum      string      `toml:"checksum"`
	StorageClass  string      `toml:"storage_class"`
	SSE           string      `toml:"sse"`
	Credentials   credentials `toml:"credentials"`
}

type credentials struct {
	Source      string `toml:"source"`
	File        string `toml:"file"`
	Profile     string `toml:"profile"`
	EnvPrefix   string `toml:"env_prefix"`
	STSEndpoint string `toml:"sts_endpoint"`
	RoleARN     string `toml:"role_arn"`
	TokenFile   string `toml:"token_file"`
}

// Targets are the targets of a file, open.
type Targets struct {
	*offload.Targets
	Stores []*objstore.Target // in the order of the file
	Where  []Location         // of each of them
	// Down says which folders can not be used now, such as those that are not mounted. They may be, later; a few of them are what parity is for.
	Down []error
}

// Location is where a target's objects are.
type Location struct {
	Kind string // "dir" or "s3"
	Name string // the folder, or endpoint and bucket; with the prefix
}

func (o *Options) location() Location {
	kind, name := "dir", o.Dir
	if o.Dir == "" {
		kind, name = "s3", strings.TrimRight(o.S3.Endpoint, "/")+"/"+o.S3.Bucket
	}
	if prefix := strings.Trim(o.Prefix, "/"); prefix != "" {
		name += "/" + prefix
	}
	return Location{kind, name}
}

// Close closes every store.
func (t *Targets) Close() error {
	errs := make([]error, 0, len(t.Stores))
	for _, s := range t.Stores {
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}

// Load opens the targets that a file describes, as docs/operations/offload.md says. No bucket is asked yet, and a folder that can not be used
// keeps nobody from the others.
func Load(name string) (*Targets, error) {
	data, err := vfs.ReadSmall(name, fileBytesMax)
	if err != nil {
		return nil, fmt.Errorf("offload targets: %w", err)
	}
	list, err := parse(data)
	if err != nil {
		return nil, fmt.Errorf("offload targets in %s: %w", name, err)
	}
	return openAll(list)
}

// configured is a target before it is opened.
type configured struct {
	Options
	domain string
}

func parse(data []byte) ([]configured, error) {
	if len(data) > fileBytesMax {
		return nil, errors.New("it is larger than 1 MiB")
	}
	var f file
	d := toml.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&f); err != nil {
		var strict *toml.StrictMissingError
		var syntax *toml.DecodeError
		switch {
		case errors.As(err, &strict) && len(strict.Errors) > 0:
			row, _ := strict.Errors[0].Position()
			return nil, fmt.Errorf("line %d: there is no setting %s", row, strings.Join(strict.Errors[0].Key(), "."))
		case errors.As(err, &syntax):
			row, _ := syntax.Position()
			return nil, fmt.Errorf("line %d: %s", row, strings.TrimPrefix(syntax.Error(), "toml: "))
		}
		return nil, err
	}
	if len(f.Target) == 0 {
		return nil, errors.New("it has no [[target]]")
	}
	list := make([]configured, len(f.Target))
	for i, e := range f.Target {
		list[i] = configured{domain: e.Domain, Options: Options{
			Dir: e.Dir, CreateDir: e.Create, Prefix: e.Prefix, Target: objstore.TargetOptions{ID: e.ID},
			S3: s3.Options{
				Endpoint: e.Endpoint, Region: e.Region, Bucket: e.Bucket, VirtualHost: e.VirtualHost, AllowInsecure: e.AllowInsecure, CAFile: e.CAFile,
				Checksum: s3.Checksum(e.Checksum), StorageClass: e.StorageClass, SSE: e.SSE, Credentials: s3.Credentials(e.Credentials),
			},
		}}
	}
	return list, nil
}

func openAll(list []configured) (_ *Targets, err error) {
	t := &Targets{}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.Close())
		}
	}()
	targets := make([]offload.Target, 0, len(list))
	for i, c := range list {
		s, err := Open(c.Options)
		var folder *objstore.Error
		if c.Dir != "" && errors.As(err, &folder) {
			t.Down = append(t.Down, err)
			c.LateDir = true
			s, err = Open(c.Options)
		}
		if err != nil {
			return nil, err
		}
		t.Stores, t.Where = append(t.Stores, s), append(t.Where, c.location())
		for _, other := range list[:i] {
			if other.Target.ID != c.Target.ID && other.samePlace(&c.Options) {
				return nil, fmt.Errorf("offload targets %s and %s are the same place: what is removed from one would be gone from both; take one of them out", other.Target.ID, c.Target.ID)
			}
		}
		targets = append(targets, offload.Target{ID: c.Target.ID, Domain: c.domain, Store: s})
	}
	if t.Targets, err = offload.NewTargets(targets); err != nil {
		return nil, err
	}
	return t, nil
}
