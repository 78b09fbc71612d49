package objstore

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"time"
)

// Report is what CheckTarget found out.
type Report struct {
	Capabilities Capabilities
	ClockOffset  time.Duration // of the store's clock, as far as it had to be made up for
	Steps        []Step        // in the order in which they were made
	Warnings     []string      // what works, but less well than it could; each says what to change
}

// Step is one request of a check.
type Step struct {
	Name string
	Took time.Duration
	Note string // what was found out, if it is not simply that the step works
}

// damager is a driver that can send a body with the checksum of another one.
type damager interface {
	PutDamaged(ctx context.Context, key string, data []byte) error
}

// clockwise is a driver that makes up for the store's clock.
type clockwise interface{ ClockOffset() time.Duration }

const (
	checkPrefix  = "check/"
	checkStep    = 30 * time.Second // for each of the steps
	checkCleanup = 30 * time.Second
)

// CheckTarget finds out whether a store can be used and what it can do: it writes, reads, lists and deletes small objects under names of its own, below
// "check/". The error, if there is one, is the first that makes the target unusable, and says what to change. Nothing is left behind unless the store
// stops answering. Give it the driver's store, so that nothing is tried twice.
func CheckTarget(ctx context.Context, s Store) (Report, error) {
	var random [8]byte
	_, _ = rand.Read(random[:]) // does not fail
	c := &check{ctx: ctx, s: s, root: checkPrefix + hex.EncodeToString(random[:])}
	c.r.Capabilities = s.Capabilities()
	defer c.cleanUp()
	for _, step := range []struct {
		name string
		run  func() error
	}{
		{"put", c.put}, {"head", c.head}, {"get a range", c.get}, {"get beyond the end", c.beyond}, {"a wrong checksum", c.damaged},
		{"put if absent", c.conditional}, {"multipart upload", c.multipart}, {"abort by exact key", c.abort}, {"list", c.list}, {"names that are folders", c.nested},
		{"delete", c.remove},
	} {
		start := time.Now()
		c.note = ""
		var done context.CancelFunc
		c.ctx, done = context.WithTimeout(ctx, checkStep)
		err := step.run()
		if err != nil && c.ctx.Err() != nil && ctx.Err() == nil { // it says that it was canceled, not by whom
			err = &Error{Kind: KindUnreachable, Op: "check", Err: fmt.Errorf("no answer within %s: %w", checkStep, err), Hint: "look at the server, and at what lies before it"}
		}
		if done(); err != nil {
			return c.r, fmt.Errorf("check %s: %w", step.name, err)
		}
		c.r.Steps = append(c.r.Steps, Step{step.name, time.Since(start), c.note})
	}
	if w, ok := s.(clockwise); ok {
		if c.r.ClockOffset = w.ClockOffset(); c.r.ClockOffset != 0 {
			c.warn("this machine's clock differs from the store's by %s: set it", c.r.ClockOffset)
		}
	}
	return c.r, nil
}

type check struct {
	ctx  context.Context
	s    Store
	root string
	r    Report
	note string
	ids  []string // uploads that may be open
	// clean: everything has been deleted
	clean bool
}

// canaries are the objects that a check may leave.
var canaries = []string{"a/below", "a", "m", "damaged"}

func (c *check) key(name string) string { return c.root + "/" + name }

func (c *check) warn(format string, args ...any) {
	c.r.Warnings = append(c.r.Warnings, fmt.Sprintf(format, args...))
}

// canary is what the check writes.
func canary(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(31*i + i>>8 + 1)
	}
	return b
}

const canarySize = 5000

var canaryMeta = map[string]string{"bko-format": "1"}

func (c *check) lie(op Op, format string, args ...any) error {
	return &Error{Kind: KindSize, Op: op, Key: c.key("a"), Err: fmt.Errorf(format, args...),
		Hint: "the store, or a proxy before it, does not keep what it is given: it can not be used"}
}

func (c *check) put() error {
	_, err := c.s.Put(c.ctx, c.key("a"), NewBody(canary(canarySize)), PutOptions{Meta: canaryMeta})
	return err
}

func (c *check) head() error {
	info, err := c.s.Head(c.ctx, c.key("a"))
	if err != nil {
		return err
	}
	if info.Size != canarySize {
		return c.lie(OpHead, "%d bytes were written, the store says it has %d", canarySize, info.Size)
	}
	if info.HasCRC32C && info.CRC32C != CRC32C(canary(canarySize)) {
		return c.lie(OpHead, "the store says CRC32C %08x of what was written with %08x", info.CRC32C, CRC32C(canary(canarySize)))
	}
	c.r.Capabilities.StoredCRC = info.HasCRC32C
	c.r.Capabilities.Meta = info.Meta["bko-format"] == "1"
	if !info.HasCRC32C {
		c.note = "no checksum kept"
		c.warn("the store keeps no CRC32C of objects: scrubs have to read them; set checksum to crc32c if the store knows it")
	}
	return nil
}

func (c *check) get() error {
	want := canary(canarySize)
	for _, at := range [][2]int{{0, canarySize}, {1234, 1000}, {canarySize - 1, 1}} {
		got := make([]byte, at[1])
		info, err := c.s.GetRange(c.ctx, c.key("a"), int64(at[0]), got)
		if err != nil {
			return err
		}
		if info.Size != canarySize || !bytes.Equal(got, want[at[0]:at[0]+at[1]]) {
			return c.lie(OpGet, "%d bytes at %d of %d are not those that were written", at[1], at[0], info.Size)
		}
	}
	return nil
}

func (c *check) beyond() error {
	_, err := c.s.GetRange(c.ctx, c.key("a"), canarySize-1, make([]byte, 2))
	if KindOf(err) == KindRange {
		return nil
	}
	if err == nil {
		return c.lie(OpGet, "two bytes at the last one were answered")
	}
	return err
}

func (c *check) damaged() error {
	d, ok := c.s.(damager)
	if !ok {
		c.note = "not asked: bodies do not leave this machine"
		return nil
	}
	err := d.PutDamaged(c.ctx, c.key("damaged"), canary(1000))
	switch KindOf(err) {
	case KindChecksum:
		c.r.Capabilities.Checksums, c.note = true, "refused"
		return nil
	case KindUnknown:
		if err == nil {
			c.r.Capabilities.Checksums, c.note = false, "stored"
			c.warn("the store does not check what it is given, so a body that is cut or damaged on the way is stored: set checksum to crc32c or md5, whichever the store knows")
			return nil
		}
	}
	return err
}

func (c *check) conditional() error {
	_, err := c.s.Put(c.ctx, c.key("a"), NewBody([]byte("other")), PutOptions{IfAbsent: true})
	switch {
	case KindOf(err) == KindExists:
		c.r.Capabilities.Conditional, c.note = true, "refused"
		return nil
	case err == nil || KindOf(err) == KindMisuse: // ignored, or not known
		c.r.Capabilities.Conditional, c.note = false, "not known"
		return c.put()
	}
	return err
}

func (c *check) multipart() error {
	key, data := c.key("m"), canary(canarySize)
	id, err := c.s.CreateUpload(c.ctx, key, UploadOptions{Meta: canaryMeta})
	if err != nil {
		return err
	}
	c.ids = append(c.ids, id)
	p, err := c.s.PutPart(c.ctx, key, id, 1, NewBody(data))
	if err != nil {
		return err
	}
	if _, err := c.s.CompleteUpload(c.ctx, key, id, []Part{p}); err != nil {
		return err
	}
	info, err := c.s.Head(c.ctx, key)
	if err != nil {
		return err
	}
	if info.Size != canarySize {
		return c.lie(OpHead, "%d bytes were uploaded, the store says it has %d", canarySize, info.Size)
	}
	if info.HasCRC32C && info.CRC32C != CRC32C(data) {
		return c.lie(OpHead, "the store says CRC32C %08x of what was uploaded with %08x", info.CRC32C, CRC32C(data))
	}
	if c.r.Capabilities.UploadCRC = info.HasCRC32C; !info.HasCRC32C {
		c.note = "no checksum of the whole"
	}
	return nil
}

func (c *check) abort() error {
	key := c.key("m")
	id, err := c.s.CreateUpload(c.ctx, key, UploadOptions{})
	if err != nil {
		return err
	}
	c.ids = append(c.ids, id)
	open, err := c.s.ListUploads(c.ctx, key)
	if err != nil {
		return err
	}
	if len(open) != 1 || open[0].ID != id {
		c.note = fmt.Sprintf("%d listed", len(open))
		c.warn("the store does not list open uploads by exact key: a crash may leave parts that nothing finds; set a rule for the bucket that aborts incomplete uploads")
	}
	return c.s.AbortUpload(c.ctx, key, id)
}

func (c *check) list() error {
	found, err := c.s.List(c.ctx, c.root+"/", "", 10)
	if err != nil {
		return err
	}
	if len(found) == 0 || found[0].Key != c.key("a") || found[0].Size != canarySize {
		c.note = fmt.Sprintf("%d listed", len(found))
		c.warn("the store does not list what was just written: orphans are found later")
	}
	return nil
}

func (c *check) nested() error {
	_, err := c.s.Put(c.ctx, c.key("a/below"), NewBody(nil), PutOptions{})
	c.r.Capabilities.Nested = err == nil
	if err != nil && !errors.Is(err, context.Canceled) {
		c.note = "refused" // names of ours are never folders of each other
	}
	return c.ctx.Err()
}

func (c *check) remove() error {
	for _, name := range canaries {
		err := c.s.Delete(c.ctx, c.key(name))
		switch {
		case KindOf(err) == KindDenied && name == "a":
			c.note = "not allowed"
			c.warn("the credential may not delete, so the check leaves small objects below %s/: a janitor needs one that may", c.root)
			return nil
		case err != nil && name != "a/below":
			return err
		}
	}
	c.clean = true
	if _, err := c.s.Head(c.ctx, c.key("a")); !IsNotFound(err) {
		if err == nil {
			return c.lie(OpHead, "a deleted object is still there")
		}
		return err
	}
	return nil
}

// cleanUp removes what a check that failed left. It has time of its own: the caller's may be over.
func (c *check) cleanUp() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), checkCleanup)
	defer cancel()
	if c.clean {
		return
	}
	for _, id := range c.ids {
		if c.s.AbortUpload(ctx, c.key("m"), id) != nil {
			return // the target is down; what is left has a name that says what it is
		}
	}
	for _, name := range canaries {
		if err := c.s.Delete(ctx, c.key(name)); err != nil && KindOf(err).Retriable() {
			return
		}
	}
}
