package offload

import (
	"fmt"

	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata"
)

// writerName stands in manifests that this code writes.
const writerName = "bindery offload 1"

// buildManifest describes what an encoder has made. key is nil without encryption.
func buildManifest(p plan, done *progress, inline []byte, meta *ledger.Metadata, targets []string, key *WrappedKey) (*Manifest, error) {
	public := meta.Clone()
	public.Password = nil // the stored record carries it in clear text; objects must not
	stored, err := metadata.EncodeLedger(public)
	if err != nil {
		return nil, fmt.Errorf("ledger %d: %w", p.ledger, err)
	}
	m := &Manifest{
		Ledger: p.ledger, Attempt: p.attempt,
		LedgerMetadata: stored, LastEntry: meta.LastEntry, Length: meta.Length, Entries: int64(meta.LastEntry) + 1,
		Digest: p.digest, Content: done.content.sum(),
		Geometry: p.geometry, CellBytes: p.cellBytes, BlockBytes: p.blockBytes, Compression: p.compression, Writer: writerName,
		Shards: make([]Shard, p.geometry.Shards()), Key: key, Inline: inline,
		stripes: done.stripes, blocks: done.blocks,
	}
	if key != nil {
		m.Encryption = EncryptAESGCM
	}
	for i, sum := range shardSums(p.geometry, done.stripes) {
		m.Shards[i] = Shard{Target: targets[i], Length: sum.length, CRC32C: sum.crc}
	}
	if err := m.check(); err != nil {
		return nil, fmt.Errorf("manifest of ledger %d: %w", p.ledger, err)
	}
	return m, nil
}
