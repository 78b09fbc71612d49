package offload

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/ledger"
)

func places(domains ...string) []Place {
	out := make([]Place, len(domains))
	for i, d := range domains {
		out[i] = Place{Target: "t" + string(rune('a'+i)), Domain: d}
	}
	return out
}

func TestTolerates(t *testing.T) {
	for _, c := range []struct {
		g    Geometry
		want map[int]int
	}{
		{Geometry{2, 1}, map[int]int{0: 0, 1: 0, 2: 0, 3: 1, 4: 1, 6: 1, 9: 1}},
		{Geometry{4, 2}, map[int]int{1: 0, 2: 0, 3: 1, 4: 1, 6: 2, 9: 2}},
		{Geometry{8, 3}, map[int]int{1: 0, 2: 0, 3: 0, 4: 1, 6: 1, 9: 1, 11: 3}},
		{Geometry{10, 4}, map[int]int{1: 0, 2: 0, 3: 0, 4: 1, 6: 1, 9: 2, 14: 4}},
	} {
		for d, want := range c.want {
			require.Equal(t, want, c.g.Tolerates(d), "%s over %d domains", c.g, d)
		}
	}
}

func TestAutoGeometry(t *testing.T) {
	for d, want := range map[int]string{0: "1+0", 1: "1+0", 2: "1+1", 3: "2+1", 4: "2+2", 5: "3+2", 6: "4+2", 20: "4+2"} {
		g := AutoGeometry(d)
		require.Equal(t, want, g.String())
		require.NoError(t, g.Validate())
		if d > 1 {
			require.GreaterOrEqual(t, g.Tolerates(d), 1)
		}
	}
}

func TestParseGeometry(t *testing.T) {
	g, err := ParseGeometry("10+4")
	require.NoError(t, err)
	require.Equal(t, Geometry{10, 4}, g)
	for _, s := range []string{"", "4", "4+", "+2", "4+2+1", "17+1", "4+9", "2+0", "0+1", "-1+2", "4 + 2"} {
		_, err := ParseGeometry(s)
		require.ErrorIs(t, err, ErrGeometry, s)
	}
}

func TestStatement38GeometryThatCanNotHoldIsRefusedWithTheNumbers(t *testing.T) {
	require.NoError(t, Geometry{4, 2}.Check(places("a", "b", "c", "d", "e", "f"), 2, false))
	err := Geometry{8, 3}.Check(places("a", "b", "c"), 1, false)
	require.ErrorIs(t, err, ErrGeometry)
	require.ErrorContains(t, err, "11 shards in 3 domains put up to 4 in one, and 3 may be lost: 0 lost domains are survived, 1 are to be")
	err = Geometry{4, 2}.Check(places("a", "a"), 0, false)
	require.ErrorContains(t, err, "one failure domain")
	require.NoError(t, Geometry{4, 2}.Check(places("a", "a"), 0, true))
	require.ErrorContains(t, Geometry{1, 0}.Check(nil, 0, false), "no target")
}

func TestACrowdedDomainIsSaid(t *testing.T) {
	for _, g := range []Geometry{{4, 2}, {1, 0}, {2, 2}} {
		require.Empty(t, g.crowded(6))
	}
	require.Equal(t, "geometry 5+2: 7 shards in 6 domains put up to 2 in one: only 1 of the domains may be lost instead of 2, which take 7 domains", Geometry{5, 2}.crowded(6))
}

func TestSpread(t *testing.T) {
	ps := places("x", "y", "x", "z", "y", "x")
	domainOf := map[string]string{}
	for _, p := range ps {
		domainOf[p.Target] = p.Domain
	}
	firsts := map[string]bool{}
	for i := range 200 {
		g := Geometry{4, 2}
		got := g.Spread(AttemptID{0, 0, byte(i >> 4), byte(i * 16), 9}, ps)
		require.Len(t, got, 6)
		perDomain := map[string]int{}
		seen := map[string]int{}
		for _, target := range got {
			perDomain[domainOf[target]]++
			seen[target]++
		}
		for d, n := range perDomain {
			require.LessOrEqual(t, n, 2, d)
		}
		require.Equal(t, 1, seen["td"]/2, "the only target of a domain gets its two")
		firsts[got[0]] = true
	}
	require.Greater(t, len(firsts), 2, "load rotates")
	require.Nil(t, Geometry{1, 0}.Spread(AttemptID{}, nil))
	require.Equal(t, Geometry{2, 1}.Spread(AttemptID{0, 0, 0, 1}, places("a", "b", "c")), []string{"tb", "tc", "ta"})
}

func TestNames(t *testing.T) {
	id, err := ParseAttemptID("3f9a0c00000000000000000000000be1")
	require.NoError(t, err)
	require.Equal(t, "o1/3f/3f9a0c00000000000000000000000be1-000000000000002a/s004-g0", ShardName(id, 42, 4, 0))
	require.Equal(t, "o1/3f/3f9a0c00000000000000000000000be1-000000000000002a/manifest", ManifestName(id, 42))
	n, ok := ParseName(ShardName(id, 1<<62, 23, 1<<31))
	require.True(t, ok)
	require.Equal(t, Name{Attempt: id, Ledger: 1 << 62, Shard: 23, Generation: 1 << 31}, n)
	n, ok = ParseName(ManifestName(id, 42))
	require.True(t, ok)
	require.Equal(t, Name{Attempt: id, Ledger: 42, Manifest: true}, n)
	good := ShardName(id, 42, 4, 0)
	for i := range good {
		b := []byte(good)
		b[i] ^= 0x40
		if n, ok := ParseName(string(b)); ok {
			require.Equal(t, string(b), ShardName(n.Attempt, n.Ledger, n.Shard, n.Generation))
		}
		_, ok := ParseName(good[:i])
		require.False(t, ok, good[:i])
	}
}

func FuzzParseName(f *testing.F) {
	f.Add(ShardName(AttemptID{1}, 42, 3, 7))
	f.Add(ManifestName(AttemptID{255}, ledger.ID(1)<<60))
	f.Fuzz(func(t *testing.T, s string) {
		n, ok := ParseName(s)
		switch {
		case !ok:
		case n.Manifest:
			require.Equal(t, s, ManifestName(n.Attempt, n.Ledger))
		default:
			require.Equal(t, s, ShardName(n.Attempt, n.Ledger, n.Shard, n.Generation))
		}
	})
}
