// Package objstoretest is the one suite that every object store driver passes: memory, a folder, S3 against a real server, and each of them behind the
// fault proxy or the retrying Target with no fault switched on.
//
// A store that can do less declares it in Capabilities; the suite then checks that it does just that, and skips nothing in silence.
//
// Only tests import it.
package objstoretest

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/offload/objstore"
)

// Run checks a store. open returns an empty one, or one whose keys do not show in what it lists.
func Run(t *testing.T, open func(t *testing.T) objstore.Store) {
	for _, c := range []struct {
		name string
		run  func(*suite)
	}{
		{"put and read back", (*suite).roundTrip},
		{"ranges", (*suite).ranges},
		{"absence", (*suite).absence},
		{"replace and put if absent", (*suite).conditional},
		{"bodies with a wrong checksum", (*suite).wrongChecksum},
		{"odd keys", (*suite).oddKeys},
		{"keys that are folders", (*suite).nested},
		{"misuse", (*suite).misuse},
		{"listing", (*suite).listing},
		{"multipart", (*suite).multipart},
		{"multipart: resend, sparse numbers, order", (*suite).resentParts},
		{"multipart: abort", (*suite).abort},
		{"multipart: what may not be completed", (*suite).incomplete},
		{"ended context", (*suite).canceled},
		{"many at once", (*suite).concurrent},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
			defer cancel()
			store := open(t)
			defer func() { require.NoError(t, store.Close()) }()
			c.run(&suite{T: t, ctx: ctx, store: store, can: store.Capabilities()})
		})
	}
}

type suite struct {
	*testing.T
	ctx   context.Context
	store objstore.Store
	can   objstore.Capabilities
}

// Bytes returns n bytes that do not compress and depend on seed.
func Bytes(seed uint64, n int) []byte {
	var key [32]byte
	for i := range 8 {
		key[i] = byte(seed >> (8 * i))
	}
	b := make([]byte, n)
	_, _ = rand.NewChaCha8(key).Read(b)
	return b
}

func (s *suite) put(key string, data []byte) objstore.Info {
	s.Helper()
	info, err := s.store.Put(s.ctx, key, objstore.NewBody(data), objstore.PutOptions{})
	require.NoError(s, err)
	return info
}

func (s *suite) kind(want objstore.Kind, err error, what string, args ...any) {
	s.Helper()
	require.Error(s, err, what, args)
	require.Equal(s, want, objstore.KindOf(err), "%s: %v", fmt.Sprintf(what, args...), err)
}

func (s *suite) holds(key string, want []byte) {
	s.Helper()
	info, err := s.store.Head(s.ctx, key)
	require.NoError(s, err)
	require.EqualValues(s, len(want), info.Size)
	if len(want) == 0 {
		return
	}
	got := make([]byte, len(want))
	info, err = s.store.GetRange(s.ctx, key, 0, got)
	require.NoError(s, err)
	require.EqualValues(s, len(want), info.Size)
	require.True(s, bytes.Equal(want, got), "other bytes under %s", key)
}

func (s *suite) roundTrip() {
	meta := map[string]string{"bko-format": "1", "bko-uuid": "3f9a0c"}
	for i, size := range []int{1, 2, 511, 65536, 1<<20 + 1, 6 << 20} {
		key := fmt.Sprintf("round/o1/%d", i)
		data := Bytes(uint64(i), size)
		before := time.Now().Add(-time.Minute)
		info, err := s.store.Put(s.ctx, key, objstore.NewBody(data), objstore.PutOptions{Meta: meta})
		require.NoError(s, err)
		require.EqualValues(s, size, info.Size)
		s.holds(key, data)

		info, err = s.store.Head(s.ctx, key)
		require.NoError(s, err)
		require.Equal(s, key, info.Key)
		require.NotEmpty(s, info.ETag)
		require.True(s, info.Modified.After(before), "modified %s", info.Modified)
		require.Equal(s, s.can.StoredCRC, info.HasCRC32C, "the stored checksum is declared")
		if info.HasCRC32C {
			require.Equal(s, objstore.CRC32C(data), info.CRC32C)
		}
		if s.can.Meta {
			require.Equal(s, meta, info.Meta)
		}
	}
	s.put("round/empty", nil)
	s.holds("round/empty", nil)
}

func (s *suite) ranges() {
	data := Bytes(7, 100_003)
	s.put("ranges/a", data)
	for _, r := range [][2]int{{0, 1}, {0, 100_003}, {100_002, 1}, {1, 100_002}, {4096, 4096}, {50_000, 33}} {
		got := make([]byte, r[1])
		info, err := s.store.GetRange(s.ctx, "ranges/a", int64(r[0]), got)
		require.NoError(s, err)
		require.EqualValues(s, len(data), info.Size, "a range read says how long the whole object is")
		require.True(s, bytes.Equal(data[r[0]:r[0]+r[1]], got), "bytes %d at %d", r[1], r[0])
	}
	for _, r := range [][2]int{{0, 100_004}, {100_002, 2}, {100_003, 1}, {1 << 40, 1}} {
		_, err := s.store.GetRange(s.ctx, "ranges/a", int64(r[0]), make([]byte, r[1]))
		s.kind(objstore.KindRange, err, "%d bytes at %d", r[1], r[0])
	}
	s.put("ranges/empty", nil)
	_, err := s.store.GetRange(s.ctx, "ranges/empty", 0, make([]byte, 1))
	s.kind(objstore.KindRange, err, "a byte of nothing")
}

func (s *suite) absence() {
	_, err := s.store.Head(s.ctx, "absence/x")
	s.kind(objstore.KindNotFound, err, "head")
	_, err = s.store.GetRange(s.ctx, "absence/x", 0, make([]byte, 1))
	s.kind(objstore.KindNotFound, err, "get")
	require.NoError(s, s.store.Delete(s.ctx, "absence/x"))
	s.put("absence/x", []byte("x"))
	require.NoError(s, s.store.Delete(s.ctx, "absence/x"))
	require.NoError(s, s.store.Delete(s.ctx, "absence/x"), "again")
	_, err = s.store.Head(s.ctx, "absence/x")
	s.kind(objstore.KindNotFound, err, "head of what was deleted")
	found, err := s.store.List(s.ctx, "absence/", "", 10)
	require.NoError(s, err)
	require.Empty(s, found)
}

func (s *suite) conditional() {
	body := func(text string) objstore.Body { return objstore.NewBody([]byte(text)) }
	once := objstore.PutOptions{IfAbsent: true}
	_, err := s.store.Put(s.ctx, "cond/a", body("first"), once)
	require.NoError(s, err)
	_, err = s.store.Put(s.ctx, "cond/a", body("second"), once)
	if s.can.Conditional {
		s.kind(objstore.KindExists, err, "put if absent")
		s.holds("cond/a", []byte("first"))
	} else {
		require.NoError(s, err, "a store that does not know the condition ignores it")
		s.holds("cond/a", []byte("second"))
	}
	s.put("cond/a", []byte("third, longer"))
	s.holds("cond/a", []byte("third, longer"))
	s.put("cond/a", []byte("4"))
	s.holds("cond/a", []byte("4"))
}

func (s *suite) wrongChecksum() {
	wrong := objstore.NewBody(Bytes(1, 1000))
	wrong.CRC32C ^= 1
	_, err := s.store.Put(s.ctx, "crc/a", wrong, objstore.PutOptions{})
	s.kind(objstore.KindChecksum, err, "put")
	require.False(s, objstore.Unclear(err))
	_, err = s.store.Head(s.ctx, "crc/a")
	s.kind(objstore.KindNotFound, err, "what was refused is not stored")
	id, err := s.store.CreateUpload(s.ctx, "crc/b", objstore.UploadOptions{})
	require.NoError(s, err)
	_, err = s.store.PutPart(s.ctx, "crc/b", id, 1, wrong)
	s.kind(objstore.KindChecksum, err, "part")
	require.NoError(s, s.store.AbortUpload(s.ctx, "crc/b", id))
}

func (s *suite) oddKeys() {
	for i, key := range []string{"odd/a b", "odd/a+b", "odd/a:b", "odd/a%20b", "odd/a=b&c?d#e", "odd/ü-日本", "odd/~'()*!", "odd/UPPER", "odd/a;b@c,d$"} {
		data := Bytes(uint64(i), 100+i)
		s.put(key, data)
		s.holds(key, data)
		found, err := s.store.List(s.ctx, key, "", 10)
		require.NoError(s, err)
		require.Len(s, found, 1, "%q", key)
		require.Equal(s, key, found[0].Key)
		require.NoError(s, s.store.Delete(s.ctx, key))
		_, err = s.store.Head(s.ctx, key)
		s.kind(objstore.KindNotFound, err, "%q", key)
	}
}

func (s *suite) nested() {
	s.put("nest/a", []byte("object"))
	_, err := s.store.Put(s.ctx, "nest/a/b", objstore.NewBody([]byte("below")), objstore.PutOptions{})
	if s.can.Nested {
		require.NoError(s, err)
		s.holds("nest/a/b", []byte("below"))
	} else {
		s.kind(objstore.KindMisuse, err, "a key below an object")
	}
	s.holds("nest/a", []byte("object"))
	s.put("nest/c/d", []byte("below"))
	_, err = s.store.Put(s.ctx, "nest/c", objstore.NewBody([]byte("object")), objstore.PutOptions{})
	if s.can.Nested {
		require.NoError(s, err)
		s.holds("nest/c", []byte("object"))
	} else {
		s.kind(objstore.KindMisuse, err, "a key that is a folder")
	}
	s.holds("nest/c/d", []byte("below"))
	_, err = s.store.Head(s.ctx, "nest")
	s.kind(objstore.KindNotFound, err, "a folder is no object")
	require.NoError(s, s.store.Delete(s.ctx, "nest/c/d"))
	s.put("nest/e/f", []byte("1"))
	require.NoError(s, s.store.Delete(s.ctx, "nest/e/f"))
	s.put("nest/e", []byte("what was a folder may become an object once it is empty"))
}

func (s *suite) misuse() {
	for _, key := range []string{"", "/a", "a/", "a//b", "../a", "a/../../b", ".hidden", "a\x00b"} {
		_, err := s.store.Put(s.ctx, key, objstore.NewBody(nil), objstore.PutOptions{})
		s.kind(objstore.KindMisuse, err, "put %q", key)
		_, err = s.store.GetRange(s.ctx, key, 0, make([]byte, 1))
		s.kind(objstore.KindMisuse, err, "get %q", key)
		_, err = s.store.Head(s.ctx, key)
		s.kind(objstore.KindMisuse, err, "head %q", key)
		s.kind(objstore.KindMisuse, s.store.Delete(s.ctx, key), "delete %q", key)
		_, err = s.store.CreateUpload(s.ctx, key, objstore.UploadOptions{})
		s.kind(objstore.KindMisuse, err, "create %q", key)
		_, err = s.store.PutPart(s.ctx, key, "id", 1, objstore.NewBody([]byte("x")))
		s.kind(objstore.KindMisuse, err, "part %q", key)
		_, err = s.store.CompleteUpload(s.ctx, key, "id", []objstore.Part{{Number: 1, Size: 1}})
		s.kind(objstore.KindMisuse, err, "complete %q", key)
		s.kind(objstore.KindMisuse, s.store.AbortUpload(s.ctx, key, "id"), "abort %q", key)
		_, err = s.store.ListUploads(s.ctx, key)
		s.kind(objstore.KindMisuse, err, "uploads %q", key)
	}
	_, err := s.store.GetRange(s.ctx, "a", -1, make([]byte, 1))
	s.kind(objstore.KindMisuse, err, "negative offset")
	_, err = s.store.GetRange(s.ctx, "a", 0, nil)
	s.kind(objstore.KindMisuse, err, "no bytes")
	_, err = s.store.Put(s.ctx, "a", objstore.NewBody(nil), objstore.PutOptions{Meta: map[string]string{"A b": "c"}})
	s.kind(objstore.KindMisuse, err, "metadata")
	found, err := s.store.List(s.ctx, "", "", 1000)
	require.NoError(s, err)
	for _, f := range found {
		require.NotContains(s, f.Key, "hidden")
	}
}

func (s *suite) listing() {
	var want []string
	for i := range 25 {
		key := fmt.Sprintf("list/%02x/k", i*7)
		want = append(want, key)
		s.put(key, Bytes(1, i))
	}
	s.put("list.x", []byte("beside"))
	s.put("lisu", []byte("beside"))
	for _, limit := range []int{1, 7, 25, 26, 1000, 0} {
		var got []string
		for after := ""; ; {
			page, err := s.store.List(s.ctx, "list/", after, limit)
			require.NoError(s, err)
			if len(page) == 0 {
				break
			}
			require.LessOrEqual(s, len(page), max(limit, 1)+1000*btoi(limit == 0))
			for _, o := range page {
				require.Equal(s, int64(len(got)), o.Size)
				require.False(s, o.Modified.IsZero())
				got = append(got, o.Key)
				after = o.Key
			}
		}
		require.Equal(s, want, got, "limit %d", limit)
	}
	page, err := s.store.List(s.ctx, "list/0", "", 10)
	require.NoError(s, err)
	require.Len(s, page, 3, "a prefix may end inside a name")
	page, err = s.store.List(s.ctx, "list/", "list/10", 1)
	require.NoError(s, err)
	require.Equal(s, "list/15/k", page[0].Key, "after may be no key")
	page, err = s.store.List(s.ctx, "list/zz", "", 10)
	require.NoError(s, err)
	require.Empty(s, page)
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (s *suite) part(key, id string, number int, data []byte) objstore.Part {
	s.Helper()
	p, err := s.store.PutPart(s.ctx, key, id, number, objstore.NewBody(data))
	require.NoError(s, err)
	require.Equal(s, number, p.Number)
	require.EqualValues(s, len(data), p.Size)
	require.Equal(s, objstore.CRC32C(data), p.CRC32C)
	require.NotEmpty(s, p.ETag)
	return p
}

func (s *suite) create(key string) string {
	s.Helper()
	id, err := s.store.CreateUpload(s.ctx, key, objstore.UploadOptions{Meta: map[string]string{"bko-shard": "4"}})
	require.NoError(s, err)
	require.NotEmpty(s, id)
	return id
}

func (s *suite) multipart() {
	const key = "multi/a"
	whole := Bytes(3, 2*objstore.PartMin+12345)
	id := s.create(key)
	_, err := s.store.Head(s.ctx, key)
	s.kind(objstore.KindNotFound, err, "nothing is visible before the end")
	parts := []objstore.Part{
		s.part(key, id, 1, whole[:objstore.PartMin]),
		s.part(key, id, 2, whole[objstore.PartMin:2*objstore.PartMin]),
		s.part(key, id, 3, whole[2*objstore.PartMin:]),
	}
	open, err := s.store.ListUploads(s.ctx, key)
	require.NoError(s, err)
	require.Len(s, open, 1)
	require.Equal(s, id, open[0].ID)
	require.Equal(s, key, open[0].Key)
	open, err = s.store.ListUploads(s.ctx, "multi")
	require.NoError(s, err)
	require.Empty(s, open, "of exactly that key")

	info, err := s.store.CompleteUpload(s.ctx, key, id, parts)
	require.NoError(s, err)
	require.EqualValues(s, len(whole), info.Size)
	s.holds(key, whole)
	info, err = s.store.Head(s.ctx, key)
	require.NoError(s, err)
	require.Equal(s, s.can.UploadCRC, info.HasCRC32C, "the checksum of a multipart object is declared")
	if info.HasCRC32C {
		require.Equal(s, objstore.CRC32C(whole), info.CRC32C)
	}
	if s.can.Meta {
		require.Equal(s, map[string]string{"bko-shard": "4"}, info.Meta)
	}
	open, err = s.store.ListUploads(s.ctx, key)
	require.NoError(s, err)
	require.Empty(s, open)
	if _, err = s.store.CompleteUpload(s.ctx, key, id, parts); err != nil { // some servers remember for a while
		s.kind(objstore.KindNoUpload, err, "complete again")
	}
	s.holds(key, whole)
	require.NoError(s, s.store.AbortUpload(s.ctx, key, id), "abort of what is complete")
	s.holds(key, whole)
}

func (s *suite) resentParts() {
	const key = "multi/b"
	id := s.create(key)
	first, second := Bytes(10, objstore.PartMin), Bytes(11, 777)
	p9 := s.part(key, id, 9, second)
	s.part(key, id, 2, Bytes(12, objstore.PartMin+5))
	p2 := s.part(key, id, 2, first)
	s.part(key, id, 4, Bytes(13, objstore.PartMin)) // sent, not wanted
	_, err := s.store.CompleteUpload(s.ctx, key, id, []objstore.Part{p2, p9})
	require.NoError(s, err)
	s.holds(key, append(first, second...))
}

func (s *suite) abort() {
	const key = "multi/c"
	id, other := s.create(key), s.create(key)
	require.NotEqual(s, id, other)
	open, err := s.store.ListUploads(s.ctx, key)
	require.NoError(s, err)
	require.Len(s, open, 2)
	p := s.part(key, id, 1, Bytes(1, 100))
	require.NoError(s, s.store.AbortUpload(s.ctx, key, id))
	require.NoError(s, s.store.AbortUpload(s.ctx, key, id), "again")
	_, err = s.store.PutPart(s.ctx, key, id, 1, objstore.NewBody([]byte("x")))
	s.kind(objstore.KindNoUpload, err, "part after abort")
	_, err = s.store.CompleteUpload(s.ctx, key, id, []objstore.Part{p})
	s.kind(objstore.KindNoUpload, err, "complete after abort")
	open, err = s.store.ListUploads(s.ctx, key)
	require.NoError(s, err)
	require.Len(s, open, 1)
	require.Equal(s, other, open[0].ID)
	require.NoError(s, s.store.AbortUpload(s.ctx, key, other))
	_, err = s.store.Head(s.ctx, key)
	s.kind(objstore.KindNotFound, err, "nothing came of it")
}

func (s *suite) incomplete() {
	const key = "multi/d"
	id := s.create(key)
	small := s.part(key, id, 1, Bytes(1, 100))
	last := s.part(key, id, 2, Bytes(2, 100))
	lie := small
	lie.Size = objstore.PartMin
	for name, parts := range map[string][]objstore.Part{
		"none": nil, "small": {small, last}, "order": {last, small}, "twice": {small, small}, "number": {{Number: 0, Size: 1}},
		"small in truth": {lie, last}, "never sent": {{Number: 7, Size: 100, ETag: "x", CRC32C: 1}},
	} {
		_, err := s.store.CompleteUpload(s.ctx, key, id, parts)
		s.kind(objstore.KindMisuse, err, "%s", name)
	}
	_, err := s.store.Head(s.ctx, key)
	s.kind(objstore.KindNotFound, err, "nothing came of it")
	_, err = s.store.PutPart(s.ctx, key, "0123456789abcdef0123456789abcdef", 1, objstore.NewBody([]byte("x")))
	s.kind(objstore.KindNoUpload, err, "unknown id")
	require.NoError(s, s.store.AbortUpload(s.ctx, key, "0123456789abcdef0123456789abcdef"))
	_, err = s.store.PutPart(s.ctx, "multi/e", id, 1, objstore.NewBody([]byte("x")))
	s.kind(objstore.KindNoUpload, err, "the id of another key")
	_, err = s.store.PutPart(s.ctx, key, id, 0, objstore.NewBody([]byte("x")))
	s.kind(objstore.KindMisuse, err, "part 0")
	require.NoError(s, s.store.AbortUpload(s.ctx, key, id))
}

func (s *suite) canceled() {
	s.put("cancel/a", []byte("x"))
	id := s.create("cancel/u")
	ctx, cancel := context.WithCancel(s.ctx)
	cancel()
	_, err := s.store.Put(ctx, "cancel/b", objstore.NewBody([]byte("x")), objstore.PutOptions{})
	s.kind(objstore.KindCanceled, err, "put")
	_, err = s.store.GetRange(ctx, "cancel/a", 0, make([]byte, 1))
	s.kind(objstore.KindCanceled, err, "get")
	_, err = s.store.Head(ctx, "cancel/a")
	s.kind(objstore.KindCanceled, err, "head")
	s.kind(objstore.KindCanceled, s.store.Delete(ctx, "cancel/a"), "delete")
	_, err = s.store.List(ctx, "cancel/", "", 1)
	s.kind(objstore.KindCanceled, err, "list")
	_, err = s.store.CreateUpload(ctx, "cancel/u", objstore.UploadOptions{})
	s.kind(objstore.KindCanceled, err, "create")
	_, err = s.store.PutPart(ctx, "cancel/u", id, 1, objstore.NewBody([]byte("x")))
	s.kind(objstore.KindCanceled, err, "part")
	_, err = s.store.CompleteUpload(ctx, "cancel/u", id, []objstore.Part{{Number: 1, Size: 1, ETag: "x"}})
	s.kind(objstore.KindCanceled, err, "complete")
	s.kind(objstore.KindCanceled, s.store.AbortUpload(ctx, "cancel/u", id), "abort")
	_, err = s.store.ListUploads(ctx, "cancel/u")
	s.kind(objstore.KindCanceled, err, "uploads")
	require.ErrorIs(s, err, context.Canceled)
	s.holds("cancel/a", []byte("x"))
	require.NoError(s, s.store.AbortUpload(s.ctx, "cancel/u", id))
}

func (s *suite) concurrent() {
	const n, prefixes = 24, 4
	// A server that keeps objects as files removes a folder with its last object, and then refuses what is put there at that moment: one stays.
	for i := range prefixes {
		s.put(fmt.Sprintf("many/%02x/stays", i), nil)
	}
	errs := make(chan error, n)
	for i := range n {
		go func() {
			key := fmt.Sprintf("many/%02x/%d", i%prefixes, i)
			data := Bytes(uint64(i), 10_000+i)
			errs <- func() error {
				for range 3 {
					if _, err := s.store.Put(s.ctx, key, objstore.NewBody(data), objstore.PutOptions{}); err != nil {
						return err
					}
					got := make([]byte, len(data))
					if _, err := s.store.GetRange(s.ctx, key, 0, got); err != nil {
						return err
					}
					if !bytes.Equal(got, data) {
						return fmt.Errorf("other bytes under %s", key)
					}
					if err := s.store.Delete(s.ctx, key); err != nil {
						return err
					}
				}
				return nil
			}()
		}()
	}
	for range n {
		require.NoError(s, <-errs)
	}
	found, err := s.store.List(s.ctx, "many/", "", 10)
	require.NoError(s, err)
	require.Len(s, found, prefixes)
}
