package freeport

import (
	"net"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPortsDifferAndAreFree(t *testing.T) {
	ports, err := Some(50)
	require.NoError(t, err)
	slices.Sort(ports)
	require.Len(t, slices.Compact(slices.Clone(ports)), 50)
	for _, p := range ports {
		require.Less(t, p, max(ephemeralLow(), 30000))
	}
	ln, err := net.Listen("tcp", Address(ports[0]))
	require.NoError(t, err, "they were let go")
	defer ln.Close()

	var held Picker
	one, err := held.Next()
	require.NoError(t, err)
	_, err = net.Listen("tcp", Address(one))
	require.Error(t, err, "it is held")
	held.Close()
	again, err := net.Listen("tcp", Address(one))
	require.NoError(t, err)
	require.NoError(t, again.Close())
}
