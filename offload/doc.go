// Package offload keeps closed ledgers in S3-compatible stores: packed into blocks and cells, Reed-Solomon coded over
// failure domains, read back bit for bit.
package offload
