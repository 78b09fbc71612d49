package offload

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Limits of a geometry.
const (
	DataShardsMax   = 16
	ParityShardsMax = 8
	shardsMax       = DataShardsMax + ParityShardsMax
)

// ErrGeometry is returned for a geometry that can not be, or that these targets can not carry. The message has the numbers.
var ErrGeometry = errors.New("offload: geometry")

// Geometry is the number of data and parity shards of a ledger. Any Parity of its shards may be lost.
type Geometry struct {
	Data   int // k: 1 to DataShardsMax
	Parity int // m: 0 to ParityShardsMax; 0 only with one data shard
}

// Shards is the number of shards.
func (g Geometry) Shards() int { return g.Data + g.Parity }

func (g Geometry) String() string { return strconv.Itoa(g.Data) + "+" + strconv.Itoa(g.Parity) }

// Validate returns an error wrapping ErrGeometry for impossible numbers.
func (g Geometry) Validate() error {
	switch {
	case g.Data < 1 || g.Data > DataShardsMax, g.Parity < 0 || g.Parity > ParityShardsMax:
		return fmt.Errorf("%w %s: 1 to %d data and 0 to %d parity shards are possible", ErrGeometry, g, DataShardsMax, ParityShardsMax)
	case g.Parity == 0 && g.Data > 1:
		return fmt.Errorf("%w %s: without parity each shard more is one more that may be lost; use 1+0", ErrGeometry, g)
	}
	return nil
}

// ParseGeometry reads "k+m". "auto" is for the caller, who knows the domains: AutoGeometry.
func ParseGeometry(s string) (Geometry, error) {
	k, m, ok := strings.Cut(s, "+")
	data, kerr := strconv.Atoi(k)
	parity, merr := strconv.Atoi(m)
	if !ok || kerr != nil || merr != nil {
		return Geometry{}, fmt.Errorf("%w %q: write data+parity, such as 4+2, or auto", ErrGeometry, s)
	}
	g := Geometry{Data: data, Parity: parity}
	return g, g.Validate()
}

// AutoGeometry is the geometry for a number of failure domains.
func AutoGeometry(domains int) Geometry {
	switch {
	case domains <= 1:
		return Geometry{1, 0}
	case domains == 2:
		return Geometry{1, 1}
	case domains == 3:
		return Geometry{2, 1}
	case domains == 4:
		return Geometry{2, 2}
	case domains == 5:
		return Geometry{3, 2}
	}
	return Geometry{4, 2}
}

// Tolerates is how many of a number of domains may be lost, shards being spread evenly.
func (g Geometry) Tolerates(domains int) int {
	if domains < 1 {
		return 0
	}
	perDomain := (g.Shards() + domains - 1) / domains
	return g.Parity / perDomain
}

// crowded says what it means that a domain gets several shards; empty: none does.
func (g Geometry) crowded(domains int) string {
	if domains < 1 || g.Shards() <= domains {
		return ""
	}
	return fmt.Sprintf("geometry %s: %d shards in %d domains put up to %d in one: only %d of the domains may be lost instead of %d, which take %d domains",
		g, g.Shards(), domains, (g.Shards()+domains-1)/domains, g.Tolerates(domains), g.Parity, g.Shards())
}

// Place is a target as placement sees it.
type Place struct {
	Target string // id
	Domain string // targets of one domain fail together
}

// Domains returns the number of domains.
func Domains(places []Place) int { return len(byDomain(places)) }

// Check says why places can not carry the geometry, or nil: at least tolerated domains must be able to fail, and parity
// inside one domain has to be asked for.
func (g Geometry) Check(places []Place, tolerated int, colocated bool) error {
	if err := g.Validate(); err != nil {
		return err
	}
	d := Domains(places)
	switch {
	case d == 0:
		return fmt.Errorf("%w %s: no target", ErrGeometry, g)
	case d == 1 && g.Parity > 0 && !colocated:
		return fmt.Errorf("%w %s: all %d targets are in one failure domain, so parity protects against a damaged object but not against losing the domain; "+
			"give the targets domains of their own, use 1+0, or allow colocated shards", ErrGeometry, g, len(places))
	}
	if got := g.Tolerates(d); got < tolerated {
		perDomain := (g.Shards() + d - 1) / d
		return fmt.Errorf("%w %s: %d shards in %d domains put up to %d in one, and %d may be lost: %d lost domains are survived, %d are to be; "+
			"add domains or parity, or lower the tolerated domains", ErrGeometry, g, g.Shards(), d, perDomain, g.Parity, got, tolerated)
	}
	return nil
}

// Spread returns the target of each shard of an attempt: the domains in turn, beginning where the attempt's id says, so
// that parity and load rotate. It is recorded and never computed again.
func (g Geometry) Spread(id AttemptID, places []Place) []string {
	domains := byDomain(places)
	if len(domains) == 0 {
		return nil
	}
	r := binary.BigEndian.Uint32(id[:4])
	out := make([]string, g.Shards())
	for i := range out {
		turn := uint64(i) + uint64(r)
		targets := domains[turn%uint64(len(domains))]
		out[i] = targets[turn/uint64(len(domains))%uint64(len(targets))]
	}
	return out
}

// byDomain groups target ids by domain, both in byte order.
func byDomain(places []Place) [][]string {
	sorted := slices.Clone(places)
	slices.SortFunc(sorted, func(a, b Place) int {
		if c := strings.Compare(a.Domain, b.Domain); c != 0 {
			return c
		}
		return strings.Compare(a.Target, b.Target)
	})
	var out [][]string
	for i, p := range sorted {
		if i == 0 || p.Domain != sorted[i-1].Domain {
			out = append(out, nil)
		}
		out[len(out)-1] = append(out[len(out)-1], p.Target)
	}
	return out
}
