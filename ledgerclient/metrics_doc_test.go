package ledgerclient

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMetricsAreDocumented: docs/operations/monitoring.md lists every figure of the client.
func TestMetricsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../docs/operations/monitoring.md")
	require.NoError(t, err)
	c := newCluster(t, 3)
	client, _ := c.client()
	w, err := client.Create(testContext(t), CreateOptions{})
	require.NoError(t, err)
	appendMany(t, w, 0, 3)
	for _, name := range client.Metrics().ListMetricNames() {
		name, _, _ = strings.Cut(name, "{")
		short := "..._" + strings.TrimPrefix(name, "bindery_client_")
		require.True(t, strings.Contains(string(text), name) || strings.Contains(string(text), short), name)
	}
	for _, op := range opNames {
		require.Contains(t, string(text), "`"+op+"`")
	}
}
