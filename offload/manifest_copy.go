package offload

import (
	"context"
	"errors"

	"github.com/binderylog/bindery/internal/corrupt"
	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/offload/objstore"
)

// goodManifest is a copy of a manifest that was compared with the record: its bytes, or of a large one where it is.
type goodManifest struct {
	target string
	store  objstore.Store
	key    string
	ref    ManifestRef
	b      []byte
}

// goodManifest looks for a good copy.
func (w *Worker) goodManifest(ctx context.Context, id ledger.ID, r *Record) (*goodManifest, error) {
	key := ManifestName(r.Attempt, id)
	var causes []error
	for _, t := range r.Manifest.Targets {
		store, err := w.o.Targets.store(t)
		g := &goodManifest{target: t, store: store, key: key, ref: r.Manifest}
		switch {
		case err != nil:
		case r.Manifest.Length <= manifestWholeMax:
			g.b, err = w.t.manifestCopy(ctx, t, key, r)
		default:
			err = w.t.checkManifestCopy(ctx, t, key, r)
		}
		if err == nil {
			return g, nil
		}
		causes = append(causes, onTarget(t, err))
	}
	return nil, noManifest(id, causes)
}

// copyTo puts a copy where none is, or in the place of a bad one. Nothing is removed first: another repair may have put a good one there.
func (g *goodManifest) copyTo(ctx context.Context, to objstore.Store, meta map[string]string) error {
	if g.b != nil {
		return putManifest(ctx, to, g.key, objstore.NewBody(g.b), objstore.PutOptions{Meta: meta})
	}
	upload, err := to.CreateUpload(ctx, g.key, objstore.UploadOptions{Meta: meta})
	if err != nil {
		return err
	}
	if err := g.sendParts(ctx, to, upload); err != nil {
		return errors.Join(err, to.AbortUpload(context.WithoutCancel(ctx), g.key, upload))
	}
	info, err := to.Head(ctx, g.key)
	if err != nil {
		return err
	}
	if err := checkInfo(info, shardSum{g.ref.Length, g.ref.CRC32C}, g.key); err != nil {
		return err
	}
	got, err := sumOf(ctx, to, g.key, g.ref.Length)
	if err != nil {
		return err
	}
	if got != g.ref.CRC32C {
		return corrupt.Errorf(g.key, 0, "manifest", "CRC32C %08x of the new copy, the record says %08x", got, g.ref.CRC32C)
	}
	_, err = abortUploads(ctx, to, g.key)
	return err
}

func (g *goodManifest) sendParts(ctx context.Context, to objstore.Store, upload string) error {
	var sent []objstore.Part
	b := make([]byte, min(g.ref.Length, getMax))
	for offset := int64(0); offset < g.ref.Length; offset += int64(len(b)) {
		b = b[:min(g.ref.Length-offset, getMax)]
		if _, err := g.store.GetRange(ctx, g.key, offset, b); err != nil {
			return err
		}
		part, err := to.PutPart(ctx, g.key, upload, len(sent)+1, objstore.NewBody(b))
		if err != nil {
			return err
		}
		sent = append(sent, part)
	}
	_, err := to.CompleteUpload(ctx, g.key, upload, sent)
	if objstore.Unclear(err) {
		err = nil // the caller looks at the object
	}
	return err
}
