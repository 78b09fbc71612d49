package offload

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/binderylog/bindery/internal/pace"
	"golang.org/x/sync/errgroup"

	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/offload/objstore"
)

// Reasons why an attempt ends for good. What it sent becomes garbage when the next one takes over.
var (
	errAbandon   = errors.New("offload: the attempt can not go on")
	errDisplaced = errors.New("offload: the record does not name this attempt any more")
)

// upload sends what one attempt's encoder makes. It goes on where the intents of a former run end.
type upload struct {
	plan
	targets  []string // of the shards
	stores   []objstore.Store
	min      int // shards that must arrive
	notes    *intents
	pool     *bufferPool
	rate     *pace.Bucket
	inFlight chan struct{}
	ours     func(context.Context) error // errDisplaced once the record names another attempt
	m        *metrics

	cancel  context.CancelCauseFunc
	wg      sync.WaitGroup
	last    chan struct{} // closed once the last stripe so far is noted
	uploads []string

	mu      sync.Mutex
	parts   [][]objstore.Part
	missing []bool
	causes  []error // of shards given up
}

// shardKey is the object that an attempt writes for a shard.
func (u *upload) shardKey(shard int) string { return ShardName(u.attempt, u.ledger, shard, 0) }

// resume takes over what a former run has sent.
func (u *upload) resume(l *leftover) {
	n := u.geometry.Shards()
	u.parts, u.missing, u.causes = make([][]objstore.Part, n), make([]bool, n), make([]error, n)
	u.uploads = l.uploads
	for i := range n {
		u.parts[i], u.missing[i] = l.parts(i)
	}
	u.last = make(chan struct{})
	close(u.last)
}

// emit sends a stripe in the background; its cells go back to the pool one by one.
func (u *upload) emit(ctx context.Context, s *codedStripe) error {
	single := s.final && s.index == 0
	if err := u.begin(ctx, single); err != nil {
		for _, c := range s.cells {
			u.pool.put(c)
		}
		return err
	}
	var parts sync.WaitGroup
	for i, cell := range s.cells {
		if len(cell) == 0 && !single || u.isMissing(i) {
			u.pool.put(cell)
			continue
		}
		select {
		case u.inFlight <- struct{}{}:
		case <-ctx.Done():
			for _, c := range s.cells[i:] {
				u.pool.put(c)
			}
			return context.Cause(ctx)
		}
		parts.Add(1)
		u.wg.Go(func() {
			defer parts.Done()
			defer func() { u.pool.put(cell); <-u.inFlight }()
			if err := u.send(ctx, s, i, cell, single); err != nil {
				u.giveUp(i, err)
			}
		})
	}
	before, done := u.last, make(chan struct{})
	u.last = done
	u.wg.Go(func() {
		defer close(done)
		parts.Wait()
		<-before
		if ctx.Err() != nil {
			return
		}
		if err := u.note(ctx, s); err != nil {
			u.cancel(err)
		}
	})
	return nil
}

// begin opens the multipart uploads, unless the ledger is one stripe, whose shards are put whole.
func (u *upload) begin(ctx context.Context, single bool) error {
	if single || u.uploads != nil {
		return nil
	}
	ids := make([]string, u.geometry.Shards())
	var g errgroup.Group
	for i := range ids {
		g.Go(func() error {
			id, err := u.stores[i].CreateUpload(ctx, u.shardKey(i), objstore.UploadOptions{Meta: u.meta(i)})
			if err != nil {
				u.giveUp(i, err)
				return context.Cause(ctx)
			}
			ids[i] = id
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	u.uploads = ids
	return u.notes.uploads(ctx, u.attempt, ids)
}

func (u *upload) meta(shard int) map[string]string {
	return objectMeta(u.attempt, u.ledger, fmt.Sprint(shard), u.geometry, u.cellBytes)
}

// send sends one cell.
func (u *upload) send(ctx context.Context, s *codedStripe, shard int, cell []byte, single bool) error {
	if err := u.rate.Wait(ctx, len(cell)); err != nil {
		return err
	}
	body := objstore.Body{Data: cell, CRC32C: s.info.crcs[shard]}
	if single {
		_, err := u.stores[shard].Put(ctx, u.shardKey(shard), body, objstore.PutOptions{Meta: u.meta(shard)})
		return err
	}
	p, err := u.stores[shard].PutPart(ctx, u.shardKey(shard), u.uploads[shard], s.index+1, body)
	if err != nil {
		return err
	}
	u.m.partsSent.Inc()
	u.m.bytesStored.Add(len(cell))
	u.mu.Lock()
	defer u.mu.Unlock()
	u.parts[shard] = append(u.parts[shard], p)
	return nil
}

// note writes the checkpoint of a stripe that has arrived.
func (u *upload) note(ctx context.Context, s *codedStripe) error {
	c := checkpoint{index: s.index, final: s.final, next: s.next, base: s.base, info: s.info, contents: s.contents, parts: make([]sentPart, u.geometry.Shards())}
	for _, b := range s.blocks {
		b.cell -= uint32(s.index * u.geometry.Data) //nolint:gosec // bounded
		c.blocks = append(c.blocks, b)
	}
	u.mu.Lock()
	for i := range c.parts {
		c.parts[i].missing = u.missing[i]
		for _, p := range u.parts[i] {
			if p.Number == s.index+1 {
				c.parts[i].etag = p.ETag
			}
		}
	}
	u.mu.Unlock()
	return u.notes.checkpoint(ctx, u.attempt, c)
}

func (u *upload) isMissing(shard int) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.missing[shard]
}

// giveUp leaves a shard out, or ends the upload if it can not be done without.
func (u *upload) giveUp(shard int, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.missing[shard] {
		return
	}
	u.missing[shard], u.causes[shard] = true, err
	n := 0
	for _, m := range u.missing {
		if m {
			n++
		}
	}
	if n > u.geometry.Shards()-u.min {
		u.cancel(fmt.Errorf("shard %d: %w", shard, mapUploadError(err)))
	}
}

// mapUploadError tells what ends the attempt from what a later try may overcome.
func mapUploadError(err error) error {
	if objstore.KindOf(err) == objstore.KindNoUpload {
		return fmt.Errorf("%w: the target dropped the upload: %w", errAbandon, err)
	}
	return err
}

// complete makes the shard objects and looks at each: size and checksum must be as they were computed.
func (u *upload) complete(ctx context.Context, sums []shardSum) error {
	if err := u.ours(ctx); err != nil {
		return err
	}
	var g errgroup.Group
	for i := range sums {
		if u.isMissing(i) {
			continue
		}
		g.Go(func() error { // stores may copy all parts for it
			err := u.completeShard(ctx, i, sums[i])
			if err == nil || errors.Is(err, errAbandon) {
				return err
			}
			u.giveUp(i, err)
			return context.Cause(ctx)
		})
	}
	return g.Wait()
}

func (u *upload) completeShard(ctx context.Context, i int, want shardSum) error {
	store, key := u.stores[i], u.shardKey(i)
	if u.uploads != nil && len(u.parts[i]) > 0 {
		_, err := store.CompleteUpload(ctx, key, u.uploads[i], sortParts(u.parts[i]))
		gone := objstore.KindOf(err) == objstore.KindNoUpload
		if objstore.KindOf(err) == objstore.KindMisuse { // the store does not have the parts that are noted, and will not have them the next time
			return fmt.Errorf("%w: shard %d: %w", errAbandon, i, err)
		}
		if err != nil && !gone && !objstore.Unclear(err) {
			return err
		}
		// An upload that is gone may have been completed by a request whose reply was lost: the object tells.
		if info, herr := store.Head(ctx, key); herr == nil {
			if err := checkInfo(info, want, key); err != nil {
				return err
			}
			// What is still open was begun by a request whose reply nobody noted: one that was sent again, or before a crash.
			_, err := abortUploads(ctx, store, key)
			return err
		} else if gone && objstore.IsNotFound(herr) {
			return fmt.Errorf("%w: the upload of shard %d is gone, and so is its object: %w", errAbandon, i, err)
		} else if err == nil {
			return herr
		}
		return err
	}
	info, err := store.Head(ctx, key)
	if objstore.IsNotFound(err) {
		return fmt.Errorf("%w: shard %d was sent, and its object is gone: %w", errAbandon, i, err)
	}
	if err != nil {
		return err
	}
	return checkInfo(info, want, key)
}

// checkInfo compares what a store says about an object with what it should be.
func checkInfo(info objstore.Info, want shardSum, key string) error {
	if info.Size != want.length || info.HasCRC32C && info.CRC32C != want.crc {
		return &objstore.Error{Kind: objstore.KindSize, Op: objstore.OpHead, Key: key, Err: fmt.Errorf("the store says %d bytes (CRC32C %08x, known: %v), it was sent %d (%08x)", info.Size, info.CRC32C, info.HasCRC32C, want.length, want.crc),
			Hint: "do not use this target: it does not keep what it confirmed"}
	}
	return nil
}

// sortParts orders parts by number; one sent twice counts once, as it was confirmed last.
func sortParts(parts []objstore.Part) []objstore.Part {
	byNumber := map[int]objstore.Part{}
	last := 0
	for _, p := range parts {
		byNumber[p.Number] = p
		last = max(last, p.Number)
	}
	var out []objstore.Part
	for n := 1; n <= last; n++ {
		if p, ok := byNumber[n]; ok {
			out = append(out, p)
		}
	}
	return out
}

// putManifests stores the manifest on the targets of the first shards that are there, one more than there are parity shards, and reads
// each copy back.
func (u *upload) putManifests(ctx context.Context, encoded []byte) ([]string, error) {
	if err := u.ours(ctx); err != nil {
		return nil, err
	}
	body := objstore.NewBody(encoded)
	key := ManifestName(u.attempt, u.ledger)
	var places []int // of one shard per target
	for i, target := range u.targets {
		if !u.isMissing(i) && !slices.ContainsFunc(places, func(p int) bool { return u.targets[p] == target }) {
			places = append(places, i)
		}
	}
	var done []string
	var causes []error
	wanted := min(u.geometry.Parity+1, distinct(u.targets))
	spare := u.geometry.Shards() - u.min // copies that may be left out, with shards that may be
	for len(done) < wanted && len(causes) <= spare && len(places) > 0 {
		batch := places[:min(wanted-len(done), len(places))]
		places = places[len(batch):]
		errs := make([]error, len(batch))
		var wg sync.WaitGroup
		for n, i := range batch {
			wg.Go(func() {
				errs[n] = putManifest(ctx, u.stores[i], key, body, objstore.PutOptions{IfAbsent: true, Meta: u.meta(i)})
			})
		}
		wg.Wait()
		for n, i := range batch {
			switch err := errs[n]; {
			case err == nil:
				done = append(done, u.targets[i])
			case errors.Is(err, errForeign):
				return nil, err
			default:
				causes = append(causes, onTarget(u.targets[i], err))
			}
		}
	}
	if len(done) < max(wanted-spare, 1) {
		return nil, fmt.Errorf("%d of %d copies of the manifest could be stored: %w", len(done), wanted, errors.Join(causes...))
	}
	return done, nil
}

// errForeign is an object under a name of ours that is not ours.
var errForeign = errors.New("offload: another object lies under a name that only this attempt uses")

// putManifest stores one copy and reads it back.
func putManifest(ctx context.Context, store objstore.Store, key string, body objstore.Body, o objstore.PutOptions) error {
	_, err := store.Put(ctx, key, body, o)
	if k := objstore.KindOf(err); err != nil && k != objstore.KindExists && !objstore.Unclear(err) {
		return err
	}
	info, err := store.Head(ctx, key)
	if err != nil {
		return err
	}
	got := make([]byte, len(body.Data))
	if info.Size == int64(len(got)) {
		if _, err := store.GetRange(ctx, key, 0, got); err != nil {
			return err
		}
	}
	if info.Size != int64(len(got)) || !bytes.Equal(got, body.Data) {
		return fmt.Errorf("%w: %s has %d bytes where %d were put; it is left alone: look at who else writes to this bucket and prefix", errForeign, key, info.Size, len(got))
	}
	return nil
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

func distinct(list []string) int {
	seen := map[string]bool{}
	for _, x := range list {
		seen[x] = true
	}
	return len(seen)
}

// planOf is the plan that an intent describes.
func planOf(id ledger.ID, attempt AttemptID, b begun, digest ledger.DigestType) plan {
	return plan{
		ledger: id, attempt: attempt, geometry: b.geometry, digest: digest, cellBytes: b.cellBytes, blockBytes: b.blockBytes,
		inlineBytes: b.inlineBytes, compression: b.compression,
	}
}
