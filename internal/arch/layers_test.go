package arch

import (
	"fmt"
	"sort"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const module = "github.com/binderylog/bindery"

// layers is the map of the repository. A package that is not listed fails the test: new packages get a place first.
var layers = map[string]int{
	"cmd/bindery":                    10,
	"internal/config":                9,
	"internal/bktest":                9,
	"internal/bktest/cores":          8,
	"internal/bktest/planted":        2,
	"facade":                         8,
	"facade/dispatch":                7,
	"facade/managedledger":           6,
	"internal/autorecovery":          6,
	"tools/iobench":                  11,
	"tools/iobench/result":           5,
	"tools/iobench/chart":            0,
	"tools/iobench/compare":          6,
	"tools/iobench/collect":          7,
	"tools/iobench/report":           7,
	"tools/iobench/modeldisk":        5,
	"tools/iobench/engine":           6,
	"tools/iobench/device":           7,
	"tools/iobench/chapter":          8,
	"tools/iobench/engines":          9,
	"tools/iobench/advice":           9,
	"tools/iobench/session":          10,
	"tools/iobench/terminal":         6,
	"bookie":                         5,
	"ledgerclient":                   5,
	"bookie/storage":                 4,
	"bookie/gc":                      4,
	"internal/metadata/driver":       4,
	"journal":                        3,
	"entrylog":                       3,
	"bookie/index":                   3,
	"offload":                        3,
	"offload/protocol":               2,
	"offload/objstore":               2,
	"offload/objstore/dir":           3,
	"offload/objstore/driver":        4,
	"offload/objstore/mem":           3,
	"offload/objstore/faulty":        3,
	"offload/objstore/s3":            3,
	"offload/objstore/s3test":        3,
	"offload/objstore/faultproxy":    3,
	"offload/objstore/objstoretest":  3,
	"ledgerclient/placement":         3,
	"internal/metadata/memmeta":      3,
	"internal/metadata/etcdmeta":     3,
	"internal/metadata/zkmeta":       3,
	"internal/metadata/metadatatest": 3,
	"internal/vfs/memfs":             3,
	"internal/vfs/errorfs":           3,
	"internal/vfs/vfstest":           3,
	"internal/loadgen":               6,
	"internal/intent":                3,
	"internal/wire":                  2,
	"internal/digest":                2,
	"internal/metadata":              2,
	"internal/ledger":                1,
	"internal/ledger/explore":        3,
	"internal/vfs":                   1,
	"internal/invariant":             0,
	"internal/corrupt":               0,
	"internal/admin":                 0,
	"internal/arch":                  0,
	"bench/guard/iocalls":            0,
	"internal/freeport":              0,
	"internal/pace":                  0,
	"internal/protofield":            0,
	"internal/usage":                 0,
	"internal/apache":                1,
	"internal/jvmtest":               2,
	"facade/pulsarwire":              0,
	// Tests that drive binaries or several parts from outside; nothing imports them.
	"bench":            10,
	"bench/guard":      10,
	"tools/modelcheck": 10,
	"tools/sim":        10,
	"test/e2e":         10,
	"test/crash":       10,
	"test/overload":    10,
	"test/integration": 10,
	"test/offload":     10,
	"test/interop":     10,
}

// sameLayer lists imports inside a layer that are meant.
var sameLayer = map[[2]string]string{
	{"entrylog", "internal/intent"}:                                  "compaction's two-phase swap is noted in the intent log",
	{"bookie/index", "entrylog"}:                                     "the index is filled from the run tables of entry logs and its locations are theirs",
	{"offload", "internal/intent"}:                                   "attempts under way are noted in the intent log",
	{"bookie/gc", "bookie/storage"}:                                  "the collector works on the storage, which knows nothing of it",
	{"internal/metadata/memmeta", "internal/metadata/metadatatest"}:  "test only: the conformance suite",
	{"internal/metadata/etcdmeta", "internal/metadata/metadatatest"}: "test only: the conformance suite",
	{"internal/metadata/zkmeta", "internal/metadata/metadatatest"}:   "test only: the conformance suite",
}

// forbidden lists edges that the layers would allow, each with the reason why it must not exist. A name that ends in
// "/..." stands for everything below.
var forbidden = []struct{ from, to, why string }{
	{"internal/wire", "net", "bytes in, structs out: whoever owns the socket decides about time and back-pressure"},
	{"internal/wire", "os", "a codec touches no file"},
	{"internal/ledger", "net", "the protocol's rules are pure, so that a simulation replays them exactly"},
	{"internal/ledger", "os", "the protocol's rules are pure"},
	{"internal/ledger", "time", "the protocol's rules have no clock"},
	{"internal/digest", "net", "digests are arithmetic"},
	{"journal", module + "/internal/ledger", "the journal stores opaque bytes and never learns what a ledger is"},
	{"journal", module + "/internal/wire", "the journal stores opaque bytes"},
	{"bookie/storage", module + "/journal", "the storage sees the journal only as a source of marks that it declares itself"},
	{"entrylog", module + "/internal/wire", "what is on disk does not follow the protocol"},
	{"offload", module + "/ledgerclient", "offload reads through an iterator that it is handed"},
	{"bookie", module + "/ledgerclient", "a bookie repairs nothing itself; what it can not do it lists"},
	{"ledgerclient", module + "/bookie", "a client works with any bookie, ours or another"},
	{"...", "go.etcd.io/etcd/...", "only the etcd driver sees etcd"},
	{"...", "github.com/go-zookeeper/zk", "only the ZooKeeper driver sees ZooKeeper"},
	{"...", "go.etcd.io/bbolt", "only the index sees bbolt"},
	{"...", "github.com/tidwall/wal", "only the intent log sees tidwall/wal"},
	{"...", "github.com/dgraph-io/ristretto/...", "only the storage's read cache sees ristretto"},
	{"...", "github.com/minio/minio-go/...", "only the S3 driver sees minio-go; no type of it leaves that package"},
	{"...", "golang.org/x/sys/...", "only the file system layer sees raw system calls"},
	{"...", "github.com/klauspost/...", "only offload codes and compresses"},
	{"...", "github.com/zeebo/xxh3", "only offload sums content"},
	{"offload/protocol", "time", "the protocol's rules have no clock"},
	{"offload/protocol", "net", "the protocol's rules are pure"},
	{"offload/protocol", "os", "the protocol's rules are pure"},
	{"...", "github.com/spf13/cobra", "only commands parse flags"},
	{"...", "github.com/pelletier/go-toml/...", "only the configuration, and the file of targets that clients get, are TOML"},
	{"...", module + "/internal/config", "packages take Options; only commands see the configuration"},
	{"...", "log", "log/slog is the one logger"},
	{"...", "github.com/sirupsen/logrus", "log/slog is the one logger"},
	{"...", "io/ioutil", "superseded by io and os"},
	{"...", "math/rand", "math/rand/v2, seeded where it has to replay"},
}

// allowed lists who may use what forbidden denies to everybody.
var allowed = map[string][]string{
	"go.etcd.io/etcd/...":                {"internal/metadata/etcdmeta"},
	"github.com/go-zookeeper/zk":         {"internal/metadata/zkmeta"},
	"go.etcd.io/bbolt":                   {"bookie/index", "tools/iobench"},
	"github.com/tidwall/wal":             {"internal/intent", "tools/iobench/engines"},
	"github.com/dgraph-io/ristretto/...": {"bookie/storage"},
	"github.com/minio/minio-go/...":      {"offload/objstore/s3"},
	"golang.org/x/sys/...":               {"internal/vfs", "journal", "bookie", "tools/iobench/device"},
	"github.com/klauspost/...":           {"offload"},
	"github.com/zeebo/xxh3":              {"offload"},
	"github.com/spf13/cobra":             {"cmd/bindery", "tools/iobench"},
	"github.com/pelletier/go-toml/...":   {"offload/objstore/driver", "internal/config"},
	module + "/internal/config":          {"cmd/bindery", "tools/iobench"},
}

func TestImportsGoDownwards(t *testing.T) {
	for _, p := range packages(t) {
		if _, ok := layers[p.dir]; !ok {
			t.Errorf("%s has no layer: give it a line in internal/arch/layers_test.go", p.dir)
		}
	}
	for _, p := range packages(t) {
		for _, e := range p.imports {
			to, ours := strings.CutPrefix(e.path, module+"/")
			if !ours || to == p.dir {
				continue
			}
			if _, meant := sameLayer[[2]string{p.dir, to}]; meant && layers[p.dir] == layers[to] {
				continue
			}
			if e.test && testOnly(to) {
				continue
			}
			if layers[to] > layers[p.dir] || (layers[to] == layers[p.dir] && !e.test) {
				t.Errorf("%s: %s (layer %d) imports %s (layer %d); imports go to lower layers only", e.file, p.dir, layers[p.dir], to, layers[to])
			}
		}
	}
}

// testOnly packages are fakes and suites that any package's tests may use.
func testOnly(dir string) bool {
	switch dir {
	case "internal/vfs/memfs", "internal/vfs/errorfs", "internal/vfs/vfstest", "internal/metadata/metadatatest", "internal/metadata/memmeta",
		"offload/objstore/mem", "offload/objstore/faulty", "offload/objstore/faultproxy", "offload/objstore/objstoretest", "offload/objstore/s3test":
		return true
	}
	return false
}

func TestForbiddenImports(t *testing.T) {
	for _, p := range packages(t) {
		for _, e := range p.imports {
			if e.test {
				continue
			}
			for _, f := range forbidden {
				if !matches(f.from, p.dir) || !matches(f.to, e.path) || mayUse(p.dir, f.to) {
					continue
				}
				t.Errorf("%s: %s must not import %s: %s", e.file, p.dir, e.path, f.why)
			}
		}
	}
}

func mayUse(dir, what string) bool {
	for _, a := range allowed[what] {
		if a == dir {
			return true
		}
	}
	return false
}

func matches(pattern, name string) bool {
	if pattern == "..." {
		return true
	}
	if prefix, ok := strings.CutSuffix(pattern, "/..."); ok {
		return name == prefix || strings.HasPrefix(name, prefix+"/")
	}
	return pattern == name
}

// TestRulesAreAlive keeps the lists from naming packages that were renamed away.
func TestRulesAreAlive(t *testing.T) {
	var unknown []string
	for _, users := range allowed {
		for _, u := range users {
			if _, ok := layers[u]; !ok {
				unknown = append(unknown, fmt.Sprintf("allowed: %s", u))
			}
		}
	}
	for edge := range sameLayer {
		if layers[edge[0]] != layers[edge[1]] {
			unknown = append(unknown, fmt.Sprintf("sameLayer: %s and %s are in different layers", edge[0], edge[1]))
		}
	}
	sort.Strings(unknown)
	for _, u := range unknown {
		t.Error(u)
	}
}
