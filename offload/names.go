package offload

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/offload/protocol"
)

// AttemptID names one try to offload a ledger.
type AttemptID = protocol.AttemptID

// ParseAttemptID reads what AttemptID.String returns.
func ParseAttemptID(s string) (AttemptID, error) { return protocol.ParseAttemptID(s) }

// nameRoot begins every object name of this format.
const nameRoot = "o1/"

// manifestName ends the name of a manifest.
const manifestName = "manifest"

// attemptPrefix begins the names of all objects of an attempt: random first, so that load spreads over key ranges, and the
// ledger where a human, and a scan after a disaster, can read it.
func attemptPrefix(id AttemptID, l ledger.ID) string {
	h := id.String()
	return fmt.Sprintf("%s%s/%s-%016x/", nameRoot, h[:2], h, uint64(l)) //nolint:gosec // ids are not negative
}

// ShardName is the object name of a shard.
func ShardName(id AttemptID, l ledger.ID, shard int, generation uint32) string {
	return fmt.Sprintf("%ss%03d-g%d", attemptPrefix(id, l), shard, generation)
}

// ManifestName is the object name of a manifest, the same on each target that has a copy.
func ManifestName(id AttemptID, l ledger.ID) string { return attemptPrefix(id, l) + manifestName }

// Name is an object name taken apart.
type Name struct {
	Attempt    AttemptID
	Ledger     ledger.ID
	Manifest   bool
	Shard      int    // if not the manifest
	Generation uint32 // if not the manifest
}

// ParseName takes an object name apart. Only names that ShardName and ManifestName make are accepted.
func ParseName(key string) (Name, bool) {
	rest, ok := strings.CutPrefix(key, nameRoot)
	if !ok || len(rest) < 53 || rest[2] != '/' || rest[35] != '-' || rest[52] != '/' {
		return Name{}, false
	}
	var n Name
	if _, err := hex.Decode(n.Attempt[:], []byte(rest[3:35])); err != nil {
		return Name{}, false
	}
	l, err := strconv.ParseInt(rest[36:52], 16, 64)
	if err != nil {
		return Name{}, false
	}
	n.Ledger = ledger.ID(l)
	part := rest[53:]
	if part == manifestName {
		n.Manifest = true
		return n, key == ManifestName(n.Attempt, n.Ledger)
	}
	if len(part) < 7 || part[0] != 's' || part[4:6] != "-g" {
		return Name{}, false
	}
	shard, serr := strconv.ParseUint(part[1:4], 10, 8)
	generation, gerr := strconv.ParseUint(part[6:], 10, 32)
	if serr != nil || gerr != nil || shard >= shardsMax {
		return Name{}, false
	}
	n.Shard, n.Generation = int(shard), uint32(generation)
	return n, key == ShardName(n.Attempt, n.Ledger, n.Shard, n.Generation)
}

// objectMeta is the user metadata of an object: for salvage by hand, never trusted by the reader.
func objectMeta(id AttemptID, l ledger.ID, part string, g Geometry, cell int) map[string]string {
	return map[string]string{
		"bko-format": "1", "bko-ledger": strconv.FormatInt(int64(l), 10), "bko-uuid": id.String(), "bko-shard": part,
		"bko-geometry": g.String(), "bko-cell": strconv.Itoa(cell),
	}
}
