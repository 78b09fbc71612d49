package bookie

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"path/filepath"

	"github.com/binderylog/bindery/internal/vfs"
)

// lossEpochName is a file in current/ of each ledger directory that holds the epoch of the bookie's last loss:
//
//	loss epoch 17
//	crc32c 0a1b2c3d
//
// A ledger that was verified since then (ledger.Replica.LossEpoch) is not verified again. The file is written before the
// first answer after a loss, and for a bookie whose id was used before. Where it is missing or damaged the present epoch
// takes its place: more is verified than needs to be, never less.
const lossEpochName = "LOSS"

func lossEpochPath(dir string) string { return filepath.Join(dir, "current", lossEpochName) }

func encodeLossEpoch(epoch uint64) []byte {
	line := fmt.Sprintf("loss epoch %d\n", epoch)
	return fmt.Appendf(nil, "%scrc32c %08x\n", line, crc32.Checksum([]byte(line), crc32.MakeTable(crc32.Castagnoli)))
}

// decodeLossEpoch returns 0 for anything but what encodeLossEpoch has made.
func decodeLossEpoch(b []byte) uint64 {
	var epoch uint64
	if _, err := fmt.Sscanf(string(b), "loss epoch %d\n", &epoch); err != nil || string(encodeLossEpoch(epoch)) != string(b) {
		return 0
	}
	return epoch
}

// readLossEpoch returns the highest epoch of the directories; 0 if any of them has none, since one that is new may stand in
// for one that knew of a later loss.
func readLossEpoch(fsys vfs.FS, dirs []string) (uint64, error) {
	var epoch uint64
	for _, dir := range dirs {
		info, err := fsys.Stat(lossEpochPath(dir))
		if errors.Is(err, fs.ErrNotExist) || err == nil && info.Size > 256 {
			return 0, nil
		}
		if err != nil {
			return 0, fmt.Errorf("read the epoch of the last loss: %w", err)
		}
		b, err := vfs.ReadFile(fsys, lossEpochPath(dir))
		if err != nil {
			return 0, fmt.Errorf("read the epoch of the last loss: %w", err)
		}
		e := decodeLossEpoch(b)
		if e == 0 {
			return 0, nil
		}
		epoch = max(epoch, e)
	}
	return epoch, nil
}

func writeLossEpoch(fsys vfs.FS, dirs []string, epoch uint64) error {
	for _, dir := range dirs {
		if err := replaceFile(fsys, lossEpochPath(dir), encodeLossEpoch(epoch)); err != nil {
			return fmt.Errorf("write the epoch of the last loss: %w", err)
		}
	}
	return nil
}

// settleLossEpoch finds out what the ledgers' verification is compared with, and makes it durable: 0 for a bookie whose
// id was never used before and that never lost anything. lost says that this start has handled a loss.
func (b *Bookie) settleLossEpoch(lost bool) error {
	if !b.identity.VerifyAdds() {
		b.lossEpoch = 0
		return nil
	}
	if !lost {
		epoch, err := readLossEpoch(b.o.FS, b.o.LedgerDirs)
		if err != nil {
			return withExit(ExitIO, err)
		}
		if epoch != 0 {
			b.lossEpoch = epoch
			return nil
		}
	}
	b.lossEpoch = b.identity.Epoch()
	return withExit(ExitIO, writeLossEpoch(b.o.FS, b.o.LedgerDirs, b.lossEpoch))
}
