package driver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/binderylog/bindery/internal/vfs"
	"github.com/binderylog/bindery/offload"
)

const (
	keysBytesMax   = 1 << 20
	keyCommandTime = 30 * time.Second
	complaintMax   = 200 // bytes of a command's standard error that are shown
)

// KeySource has the keys of encrypted ledgers from a file, from the environment, or from a command. They are read once, when the first
// is needed.
type KeySource struct {
	kind, name string
	current    string
	write      bool // a key for new ledgers is needed, too

	mu   sync.Mutex
	keys *offload.Keys
}

// OpenKeys returns the source that a setting names: file:PATH, env:NAME or command:PATH ARGUMENTS, nil for "". Each gives lines as
// offload.ParseKeys reads them. With write, current is the id of the key for new ledgers, "" for the only one.
func OpenKeys(source, current string, write bool) (*KeySource, error) {
	if source == "" {
		return nil, nil
	}
	kind, name, _ := strings.Cut(source, ":")
	s := &KeySource{kind: kind, name: strings.TrimSpace(name), current: current, write: write}
	switch {
	case kind != "file" && kind != "env" && kind != "command", s.name == "":
		return nil, errors.New("key source: it is file:PATH, env:NAME or command:PATH; a key itself never stands there")
	case kind == "command" && !filepath.IsAbs(s.name):
		return nil, errors.New("key source: the path of a command has to be absolute")
	}
	return s, nil
}

// Load reads the keys if that was not done yet. What a caller gets is not to be changed.
func (s *KeySource) Load(ctx context.Context) (*offload.Keys, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.keys != nil {
		return s.keys, nil
	}
	keys, err := s.load(ctx)
	if err != nil {
		return nil, fmt.Errorf("offload keys from %s %s: %w", s.kind, s.name, err)
	}
	s.keys = keys
	return keys, nil
}

func (s *KeySource) load(ctx context.Context) (*offload.Keys, error) {
	text, err := s.text(ctx)
	if err != nil {
		return nil, err
	}
	keys, err := offload.ParseKeys(text)
	if err == nil && s.write {
		err = keys.Choose(s.current)
	}
	return keys, err
}

func (s *KeySource) text(ctx context.Context) ([]byte, error) {
	switch s.kind {
	case "env":
		text := os.Getenv(s.name)
		if text == "" {
			return nil, errors.New("the variable is not set")
		}
		return []byte(text), nil
	case "command":
		return s.run(ctx)
	}
	return vfs.ReadSmall(s.name, keysBytesMax)
}

func (s *KeySource) run(ctx context.Context) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, keyCommandTime)
	defer cancel()
	words := strings.Fields(s.name)
	c := exec.CommandContext(ctx, words[0], words[1:]...) //nolint:gosec // the operator's own setting
	c.WaitDelay = time.Second
	var out, complaint cut
	out.room, complaint.room = keysBytesMax+1, complaintMax
	c.Stdout, c.Stderr = &out, &complaint
	err := c.Run()
	if text := strings.TrimSpace(complaint.String()); err != nil && text != "" {
		err = fmt.Errorf("%w: %s", err, text)
	}
	if err != nil {
		return nil, err
	}
	if out.Len() > keysBytesMax {
		return nil, errors.New("it printed more than 1 MiB")
	}
	return out.Bytes(), nil
}

// cut keeps the first bytes of what is written.
type cut struct {
	bytes.Buffer
	room int
}

// Write implements io.Writer.
func (c *cut) Write(p []byte) (int, error) {
	n := min(len(p), c.room)
	c.room -= n
	_, _ = c.Buffer.Write(p[:n]) // never fails
	return len(p), nil
}

// Wrap implements offload.KeySource.
func (s *KeySource) Wrap(ctx context.Context, dataKey []byte) (offload.WrappedKey, error) {
	keys, err := s.Load(ctx)
	if err != nil {
		return offload.WrappedKey{}, err
	}
	return keys.Wrap(ctx, dataKey)
}

// Unwrap implements offload.KeySource.
func (s *KeySource) Unwrap(ctx context.Context, k offload.WrappedKey) ([]byte, error) {
	keys, err := s.Load(ctx)
	if err != nil {
		return nil, err
	}
	return keys.Unwrap(ctx, k)
}
