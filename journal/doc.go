// Package journal makes records durable before anyone is told they are.
package journal
