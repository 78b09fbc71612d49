package offload

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"sync"

	"github.com/binderylog/bindery/internal/intent"
	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/vfs"
	"github.com/binderylog/bindery/offload/objstore"
)

// The intents of a worker. They make a restart cheap and are needed for nothing else: a worker that lost them lets the attempt be
// taken over. docs/formats/offload.md has the bytes.
const (
	noteBegin      = 1 // what is to be uploaded, before the record names the attempt
	noteUploads    = 2 // ids of the multipart uploads
	noteCheckpoint = 3 // a stripe whose parts the targets have confirmed
	noteEpoch      = 4 // raised before anything is encoded again
	noteCluster    = 5 // whose ledgers the others are about
)

const (
	noteHeader     = 1 + 16 + 8
	uploadIDMax    = 1024
	clusterIDMax   = 256
	checkpointsMax = 3000 // of one attempt; later stripes are not noted, and are sent again after a crash
)

// begun is a noteBegin.
type begun struct {
	geometry    Geometry
	targets     []string // of the shards
	cellBytes   int
	blockBytes  int
	inlineBytes int
	compression Compression
	last        ledger.EntryID
	length      int64
}

// checkpoint is a noteCheckpoint.
type checkpoint struct {
	index    int
	final    bool
	next     ledger.EntryID
	base     int64
	info     stripe
	blocks   []blockRef // cells counted from the stripe's first
	contents []contentSum
	parts    []sentPart // of the shards
	inline   []byte     // of a ledger whose blocks are in the manifest; then there is nothing else
}

// sentPart is a part that a target confirmed.
type sentPart struct {
	missing bool // the shard was given up
	etag    string
}

// leftover is what a worker's intents say about an attempt.
type leftover struct {
	ledger      ledger.ID
	attempt     AttemptID
	begin       begun
	uploads     []string // nil: none were created
	checkpoints []checkpoint
	epoch       uint32
}

// attemptNotes is what is remembered of an attempt's notes, which the log holds.
type attemptNotes struct {
	ledger      ledger.ID
	checkpoints int      // without a gap
	ids         []uint64 // of the intents
}

// intents is the worker's log, one list of notes per attempt.
type intents struct {
	log intent.Log
	dir string // for people; empty: not known

	cluster   string // that the notes are of; empty: not known
	clusterID uint64 // of the note that says so

	mu    sync.Mutex
	left  map[AttemptID]*attemptNotes // guarded by mu
	ended []uint64                    // guarded by mu; intents that are of no use, of which the log could not be told
}

// openIntents reads what a former run left.
func openIntents(log intent.Log, dir string) (*intents, error) {
	n := &intents{log: log, dir: dir, left: map[AttemptID]*attemptNotes{}}
	left := map[AttemptID]*leftover{}
	ids := map[AttemptID][]uint64{}
	var stray []uint64
	for _, r := range log.Pending() {
		if cluster, ok := clusterOf(r); ok && n.cluster == "" {
			n.cluster, n.clusterID = cluster, r.ID
			continue
		}
		switch id, known := load(r, left); {
		case !known && isForeign(r):
			return nil, fmt.Errorf("offload intents: %s: intent %d is none of a worker of this version: the directory belongs to something else, or a newer version wrote it; name another one ([offload] dir), or use that version", dir, r.ID)
		case !known:
			stray = append(stray, r.ID)
		default:
			ids[id] = append(ids[id], r.ID)
		}
	}
	for id, l := range left {
		n.left[id] = &attemptNotes{ledger: l.ledger, checkpoints: len(l.checkpoints), ids: ids[id]}
	}
	if len(stray) > 0 { // notes without a beginning: what they belong to was ended in part
		if err := log.Done(context.Background(), stray...); err != nil {
			return nil, intentsError(dir, err)
		}
	}
	return n, nil
}

// clusterOf is what a noteCluster says.
func clusterOf(r intent.Record) (string, bool) {
	if len(r.Data) < noteHeader || r.Data[0] != noteCluster {
		return "", false
	}
	rd := &reader{b: r.Data[noteHeader:]}
	name := rd.text16(clusterIDMax)
	return name, rd.end() == nil
}

// isForeign tells what can not have been written as a note from what merely lost its beginning.
func isForeign(r intent.Record) bool {
	return len(r.Data) < noteHeader || r.Data[0] <= noteBegin || r.Data[0] > noteCluster
}

// intentsError says what to do about a log that can not be opened or written to.
func intentsError(dir string, err error) error {
	hint := ""
	switch {
	case errors.Is(err, vfs.ErrLocked):
		hint = "; each worker needs a directory of its own: name another one ([offload] dir), or stop that worker"
	case errors.Is(err, intent.ErrPoisoned):
		hint = "; see to the disk and start the worker again"
	case vfs.IsNoSpace(err):
		hint = "; free space there, and the worker goes on"
	case errors.Is(err, fs.ErrPermission):
		hint = "; let the worker's user read and write " + dir
	}
	return fmt.Errorf("offload intents: %w%s", err, hint)
}

// belong refuses notes of another cluster: ids of its ledgers name other ledgers here. A log without attempts becomes this cluster's.
func (n *intents) belong(cluster string) error {
	ctx := context.Background()
	switch {
	case cluster == "" || n.cluster == cluster:
		return nil
	case n.cluster != "" && len(n.left) > 0:
		return fmt.Errorf("offload intents: %s has those of cluster %s, and this is cluster %s; each worker needs a directory of its own: name another one ([offload] dir), or remove it if that cluster is no more",
			n.dir, n.cluster, cluster)
	case n.cluster != "":
		n.ended = append(n.ended, n.clusterID)
		if err := n.finish(ctx); err != nil {
			return err
		}
	}
	id, err := n.append(ctx, noteCluster, AttemptID{}, 0, appendBytes16(nil, []byte(cluster)))
	if err != nil {
		return err
	}
	n.cluster, n.clusterID = cluster, id
	return nil
}

// load adds one note to what is left; false says that it is of no use.
func load(r intent.Record, left map[AttemptID]*leftover) (AttemptID, bool) {
	if len(r.Data) < noteHeader {
		return AttemptID{}, false
	}
	kind, id := r.Data[0], AttemptID(r.Data[1:17])
	l := left[id]
	rd := &reader{b: r.Data[noteHeader:]}
	if kind == noteBegin && l == nil {
		l = &leftover{ledger: ledger.ID(binary.BigEndian.Uint64(r.Data[17:])), attempt: id, begin: decodeBegun(rd)} //nolint:gosec // written as such
		if rd.end() != nil || l.begin.geometry.Validate() != nil || len(l.begin.targets) != l.begin.geometry.Shards() {
			return id, false
		}
		left[id] = l
	}
	if l == nil {
		return id, false
	}
	switch kind {
	case noteUploads:
		l.uploads = nil
		for range l.begin.geometry.Shards() {
			l.uploads = append(l.uploads, rd.text16(uploadIDMax))
		}
		if rd.end() != nil {
			l.uploads = nil
		}
	case noteEpoch:
		l.epoch = max(l.epoch, rd.uint32())
	case noteCheckpoint:
		c := decodeCheckpoint(rd, l.begin.geometry)
		// A gap ends what can be resumed, and so does the loss of the uploads that parts were sent to.
		if rd.end() == nil && c.index == len(l.checkpoints) && (l.uploads != nil || c.final && c.index == 0) {
			l.checkpoints = append(l.checkpoints, c)
		}
	}
	return id, true
}

// of returns what is left of an attempt at a ledger, nil if there is none.
func (n *intents) of(id ledger.ID) *leftover {
	n.mu.Lock()
	defer n.mu.Unlock()
	for attempt, l := range n.left {
		if l.ledger == id {
			return n.leftLocked(attempt)
		}
	}
	return nil
}

// leftLocked puts together what the log has of an attempt.
func (n *intents) leftLocked(id AttemptID) *leftover {
	left := map[AttemptID]*leftover{}
	for _, r := range n.log.Pending() {
		if len(r.Data) >= noteHeader && AttemptID(r.Data[1:17]) == id {
			load(r, left)
		}
	}
	return left[id]
}

// ledgers lists the ledgers that attempts are noted for.
func (n *intents) ledgers() []ledger.ID {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []ledger.ID
	for _, l := range n.left {
		out = append(out, l.ledger)
	}
	return out
}

func (n *intents) begin(ctx context.Context, id AttemptID, l ledger.ID, b begun) error {
	if err := n.finish(ctx); err != nil {
		return err
	}
	n.mu.Lock()
	n.left[id] = &attemptNotes{ledger: l}
	n.mu.Unlock()
	err := n.note(ctx, noteBegin, id, b.encode(nil))
	if err != nil { // should it be in the log all the same, the next start finds that no record names it
		n.mu.Lock()
		delete(n.left, id)
		n.mu.Unlock()
	}
	return err
}

func (n *intents) uploads(ctx context.Context, id AttemptID, uploads []string) error {
	var b []byte
	for _, u := range uploads {
		b = appendBytes16(b, []byte(u))
	}
	return n.note(ctx, noteUploads, id, b) // a checkpoint without it is of no use: the next try begins other uploads
}

func (n *intents) epoch(ctx context.Context, id AttemptID, epoch uint32) error {
	return n.note(ctx, noteEpoch, id, binary.BigEndian.AppendUint32(nil, epoch))
}

// checkpoint notes a stripe. One that the log has no room for is not noted, nor is any later one: that costs repeated work only.
func (n *intents) checkpoint(ctx context.Context, id AttemptID, c checkpoint) error {
	n.mu.Lock()
	l := n.left[id]
	skip := c.index != l.checkpoints || c.index >= checkpointsMax
	n.mu.Unlock()
	if skip {
		return nil
	}
	err := n.note(ctx, noteCheckpoint, id, c.encode(nil))
	if errors.Is(err, intent.ErrTooLarge) || errors.Is(err, intent.ErrFull) {
		return nil
	}
	if err == nil {
		n.mu.Lock()
		l.checkpoints++
		n.mu.Unlock()
	}
	return err
}

// end forgets an attempt.
func (n *intents) end(ctx context.Context, id AttemptID) error {
	n.mu.Lock()
	l := n.left[id]
	delete(n.left, id)
	if l != nil {
		n.ended = append(n.ended, l.ids...)
	}
	n.mu.Unlock()
	return n.finish(ctx)
}

// finish tells the log which notes are of no use any more. Those that it could not be told of, the disk being full, are told with the next.
func (n *intents) finish(ctx context.Context) error {
	n.mu.Lock()
	ids := n.ended
	n.ended = nil
	n.mu.Unlock()
	if len(ids) == 0 {
		return nil
	}
	if err := n.log.Done(ctx, ids...); err != nil {
		n.mu.Lock()
		n.ended = append(n.ended, ids...)
		n.mu.Unlock()
		return intentsError(n.dir, err)
	}
	return nil
}

// append writes one note.
func (n *intents) append(ctx context.Context, kind byte, id AttemptID, l ledger.ID, body []byte) (uint64, error) {
	b := append([]byte{kind}, id[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(l)) //nolint:gosec // ids are not negative
	noteID, err := n.log.Append(ctx, append(b, body...))
	if err != nil {
		return 0, intentsError(n.dir, err)
	}
	return noteID, nil
}

func (n *intents) note(ctx context.Context, kind byte, id AttemptID, body []byte) error {
	n.mu.Lock()
	l := n.left[id]
	n.mu.Unlock()
	noteID, err := n.append(ctx, kind, id, l.ledger, body)
	if err != nil {
		return err
	}
	n.mu.Lock()
	l.ids = append(l.ids, noteID)
	n.mu.Unlock()
	return nil
}

func (b *begun) encode(dst []byte) []byte {
	dst = append(dst, byte(b.geometry.Data), byte(b.geometry.Parity), byte(b.compression))
	for _, t := range b.targets {
		dst = appendBytes16(dst, []byte(t))
	}
	for _, v := range [...]uint64{uint64(b.cellBytes), uint64(b.blockBytes), uint64(b.inlineBytes), uint64(b.last), uint64(b.length)} { //nolint:gosec // not negative
		dst = binary.AppendUvarint(dst, v)
	}
	return dst
}

func decodeBegun(r *reader) begun {
	b := begun{geometry: Geometry{int(r.uint8()), int(r.uint8())}, compression: Compression(r.uint8())}
	if b.geometry.Validate() != nil {
		r.fail("geometry %s", b.geometry)
		return b
	}
	for range b.geometry.Shards() {
		b.targets = append(b.targets, r.text16(targetIDMax))
	}
	b.cellBytes, b.blockBytes, b.inlineBytes = int(r.uvarint(CellBytesMax)), int(r.uvarint(BlockBytesMax)), int(r.uvarint(InlineBytesMax))
	b.last, b.length = ledger.EntryID(r.uvarint(1<<62)), int64(r.uvarint(1<<62)) //nolint:gosec // bounded
	return b
}

func (c *checkpoint) encode(dst []byte) []byte {
	final := byte(0)
	if c.final {
		final = 1
	}
	dst = binary.AppendUvarint(append(dst, final), uint64(c.index))
	dst = binary.AppendUvarint(dst, uint64(c.next)) //nolint:gosec // not negative
	dst = binary.AppendUvarint(dst, uint64(c.base)) //nolint:gosec // not negative
	dst = appendBytes32(dst, c.inline)
	if c.inline == nil {
		for _, l := range c.info.lengths {
			dst = binary.AppendUvarint(dst, uint64(l))
		}
		for _, v := range c.info.crcs {
			dst = binary.BigEndian.AppendUint32(dst, v)
		}
		for _, p := range c.parts {
			flag := byte(0)
			if p.missing {
				flag = 1
			}
			dst = appendBytes16(append(dst, flag), []byte(p.etag))
		}
	}
	dst = binary.AppendUvarint(dst, uint64(len(c.blocks)))
	prev := ledger.EntryID(0)
	for _, b := range c.blocks {
		for _, v := range [...]uint64{uint64(b.first - prev), uint64(b.cell), uint64(b.offset), uint64(b.stored), uint64(b.raw)} { //nolint:gosec // ascending
			dst = binary.AppendUvarint(dst, v)
		}
		dst = binary.BigEndian.AppendUint32(dst, b.crc)
		prev = b.first
	}
	dst = binary.AppendUvarint(dst, uint64(len(c.contents)))
	for i := range c.contents {
		dst = append(dst, c.contents[i][:]...)
	}
	return dst
}

func decodeCheckpoint(r *reader, g Geometry) checkpoint {
	c := checkpoint{final: r.uint8() == 1, index: int(r.uvarint(stripesMax)), next: ledger.EntryID(r.uvarint(1 << 62)), base: int64(r.uvarint(1 << 62))} //nolint:gosec // bounded
	if n := int(r.uint32()); n > 0 {
		c.inline = bytes.Clone(r.take(n))
	} else {
		c.info = stripe{lengths: make([]uint32, g.Data), crcs: make([]uint32, g.Shards())}
		for i := range c.info.lengths {
			c.info.lengths[i] = uint32(r.uvarint(CellBytesMax)) //nolint:gosec // bounded
		}
		for i := range c.info.crcs {
			c.info.crcs[i] = r.uint32()
		}
		for range g.Shards() {
			c.parts = append(c.parts, sentPart{missing: r.uint8() == 1, etag: r.text16(uploadIDMax)})
		}
	}
	n := int(r.uvarint(uint64(r.left()))) //nolint:gosec // bounded by what is left
	first := ledger.EntryID(0)
	for range min(n, r.left()/9) {
		first += ledger.EntryID(r.uvarint(1 << 62))                                                                                                                                                    //nolint:gosec // bounded
		b := blockRef{first: first, cell: uint32(r.uvarint(DataShardsMax - 1)), offset: uint32(r.uvarint(CellBytesMax)), stored: uint32(r.uvarint(CellBytesMax)), raw: uint32(r.uvarint(blockRawMax))} //nolint:gosec // bounded
		b.crc = r.uint32()
		c.blocks = append(c.blocks, b)
	}
	n = int(r.uvarint(uint64(r.left()))) //nolint:gosec // bounded by what is left
	for range min(n, r.left()/16) {
		c.contents = append(c.contents, contentSum(r.take(16)))
	}
	return c
}

// progress puts the noted stripes together, with blocks counted through.
func (l *leftover) progress() progress {
	var p progress
	for i := range l.checkpoints {
		c := &l.checkpoints[i]
		for _, b := range c.blocks {
			b.cell += uint32(i * l.begin.geometry.Data) //nolint:gosec // bounded
			p.blocks = append(p.blocks, b)
		}
		p.content.add(c.contents)
		if c.inline == nil {
			p.stripes = append(p.stripes, c.info)
		}
		p.next, p.base = c.next, c.base
	}
	numberBlocks(p.blocks, p.next)
	return p
}

// numberBlocks counts the blocks that have entries.
func numberBlocks(blocks []blockRef, next ledger.EntryID) {
	number := uint32(0)
	for i := range blocks {
		end := next
		if i+1 < len(blocks) {
			end = blocks[i+1].first
		}
		if blocks[i].number = 0; end > blocks[i].first {
			blocks[i].number = number
			number++
		}
	}
}

// parts lists the confirmed parts of a shard.
func (l *leftover) parts(shard int) (parts []objstore.Part, missing bool) {
	for i := range l.checkpoints {
		c := &l.checkpoints[i]
		if c.inline != nil {
			continue
		}
		if c.parts[shard].missing {
			return nil, true
		}
		if n := c.info.length(shard); n > 0 {
			parts = append(parts, objstore.Part{Number: i + 1, Size: int64(n), CRC32C: c.info.crcs[shard], ETag: c.parts[shard].etag})
		}
	}
	return parts, false
}
