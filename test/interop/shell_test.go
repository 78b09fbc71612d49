//go:build interop

package interop

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// shells runs commands of Apache's bookie shell against a fleet of ours.
func shells(t *testing.T, f *fleet, versions []string) {
	for _, v := range versions {
		c := &goClient{f.client}
		w, err := written(c, plain, 12, size)
		require.NoError(t, err)
		require.NoError(t, w.close())
		id := fmt.Sprint(w.id())
		doomed, err := written(c, plain, 1, size)
		require.NoError(t, err)
		require.NoError(t, doomed.close())
		instance := f.instance(t)
		for i, cmd := range []struct {
			args []string
			says []string // patterns in the output
		}{
			{[]string{"whatisinstanceid"}, []string{instance}},
			{[]string{"listbookies", "-rw"}, ids(f)},
			{[]string{"listbookies", "-a"}, ids(f)},
			{[]string{"endpointinfo", "-b", f.bookies[0].id}, []string{"bookie-rpc"}},
			{[]string{"bookieinfo"}, []string{regexp.QuoteMeta(f.bookies[0].id), "[Ff]ree"}},
			{[]string{"listledgers", "-meta"}, []string{id, "CRC32C", "CLOSED"}},
			{[]string{"ledgermetadata", "-ledgerid", id}, []string{"ensembleSize=3", "lastEntryId=11", "state=CLOSED"}},
			{[]string{"readledger", "-ledgerid", id, "-msg", "-fe", "0", "-le", "11"}, []string{"11"}},
			{[]string{"readledger", "-ledgerid", id, "-b", f.bookies[0].id}, nil},
			{[]string{"simpletest", "-ensemble", "3", "-writeQuorum", "2", "-ackQuorum", "2", "-numEntries", "100"}, []string{"100 entries written to ledger"}},
			{[]string{"cookie_get", f.bookies[0].id}, []string{regexp.QuoteMeta(f.bookies[0].id)}},
			{[]string{"autorecovery", "-disable"}, nil},
			{[]string{"autorecovery", "-enable"}, nil},
			{[]string{"lostbookierecoverydelay", "-set", "7"}, nil},
			{[]string{"lostbookierecoverydelay", "-get"}, []string{"7"}},
			{[]string{"listunderreplicated"}, nil},
			{[]string{"deleteledger", "-ledgerid", fmt.Sprint(doomed.id()), "-force"}, nil},
		} {
			if testing.Short() && i%5 != 1 && cmd.args[0] != "deleteledger" {
				continue
			}
			out, err := shell(t, v, f.uri, cmd.args...)
			ok := err == nil
			for _, p := range cmd.says {
				if !regexp.MustCompile(p).MatchString(out) {
					ok = false
					t.Errorf("shell %s, %v: the output lacks %q", v, cmd.args, p)
				}
			}
			if err != nil {
				t.Errorf("shell %s, %v: %v", v, cmd.args, err)
			}
			if !ok {
				t.Logf("%s", out[max(0, len(out)-3000):])
			}
			lines = append(lines, fmt.Sprintf("%-4s  shell %s  %s", map[bool]string{true: "ok", false: "FAIL"}[ok], v, strings.Join(cmd.args, " ")))
		}
		_, err = c.open(doomed.id(), plain.digest, false)
		require.ErrorIs(t, err, errNoLedger, "deleteledger")
		recoverByShell(t, f, v)
	}
}

// recoverByShell lets the shell copy what a dead bookie of ours stored to the others. Our auto-recovery is off meanwhile: it would
// copy the same ledgers, and the shell takes a record that changed under its hands for a failure.
func recoverByShell(t *testing.T, f *fleet, version string) {
	c := &goClient{f.client}
	w, err := written(c, plain, 30, size)
	require.NoError(t, err)
	require.NoError(t, w.close())
	v, err := victim(f, w.id())
	require.NoError(t, err)
	say := func(what string) {
		out, err := shell(t, version, f.uri, "autorecovery", what)
		require.NoError(t, err, out)
	}
	say("-disable")
	defer say("-enable")
	v.kill()
	out, err := shell(t, version, f.uri, "recover", "-f", "-sk", v.id)
	ok := err == nil
	if err != nil {
		t.Errorf("shell %s, recover: %v\n%s", version, err, out[max(0, len(out)-4000):])
	} else {
		ctx, cancel := within()
		defer cancel()
		m, err := f.client.Metadata(ctx, idOf(w.id()))
		require.NoError(t, err)
		require.NotContains(t, m.Fragments[0].Bookies, bookieOf(v.id), "the shell has replaced the dead bookie")
		require.NoError(t, sealed(c, w.id(), plain.digest, false, 29, size))
	}
	lines = append(lines, fmt.Sprintf("%-4s  shell %s  recover BOOKIE", map[bool]string{true: "ok", false: "FAIL"}[ok], version))
	v.start()
	f.ready()
}

func ids(f *fleet) (patterns []string) {
	for _, b := range f.bookies {
		patterns = append(patterns, regexp.QuoteMeta(b.id))
	}
	return patterns
}
