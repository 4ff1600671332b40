package partfile

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"testing"

	"colabrelay/shared/contract"
	"colabrelay/shared/ranges"
)

// memoryFile is a part file in memory. had are bytes that nobody may write again.
type memoryFile struct {
	t     *testing.T
	bytes []byte
	had   ranges.Set
}

func (f *memoryFile) ReadAt(b []byte, at int64) (int, error) { return copy(b, f.bytes[at:]), nil }

func (f *memoryFile) WriteAt(b []byte, at int64) (int, error) {
	if twice := f.had.Within(contract.Range{Offset: at, Length: int64(len(b))}); len(twice) > 0 {
		f.t.Errorf("%v was written twice", twice)
	}
	return copy(f.bytes[at:], b), nil
}

// Pieces arrive in any order, some twice, and the program is killed again and again: only what the
// journal lists counts then, and the digest is right in the end.
func TestWhatArrivedCountsAcrossKills(t *testing.T) {
	for seed := range uint64(10) {
		random := rand.New(rand.NewPCG(seed, 0))
		content := make([]byte, 1+random.IntN(3<<20))
		_, _ = rand.NewChaCha8([32]byte{byte(seed)}).Read(content)
		size := int64(len(content))
		f := &memoryFile{t: t, bytes: make([]byte, size)}
		var journal ranges.Set
		save := func(s ranges.Set) error {
			journal = s
			return nil
		}
		r := NewReceived(size, nil, save)
		for len(r.Missing()) > 0 {
			piece, _ := r.Missing()[random.IntN(len(r.Missing())):].Front(1 + random.Int64N(1<<20))
			piece.Offset -= random.Int64N(min(piece.Offset, 1000) + 1) // some that arrived before
			if err := r.Write(f, piece.Offset, content[piece.Offset:piece.End()]); err != nil {
				t.Fatal(err)
			}
			f.had = f.had.Add(piece)
			if random.IntN(4) == 0 {
				if err := r.Save(); err != nil {
					t.Fatal(err)
				}
			}
			if random.IntN(8) == 0 {
				f.had, r = journal, NewReceived(size, journal, save)
			}
		}
		want := sha256.Sum256(content)
		if sum, err := r.Sum(t.Context(), f, nil); err != nil || sum != hex.EncodeToString(want[:]) || !bytes.Equal(f.bytes, content) {
			t.Errorf("seed %d: the digest is %q, %v", seed, sum, err)
		}
	}
}

func TestNothingIsWrittenAfterTheEnd(t *testing.T) {
	f := &memoryFile{t: t, bytes: make([]byte, 10)}
	r := NewReceived(10, nil, func(ranges.Set) error { return errors.New("saved") })
	why := errors.New("dropped")
	r.End(why)
	if err := errors.Join(r.Write(f, 0, []byte("x")), r.Save()); !errors.Is(err, why) || f.bytes[0] != 0 {
		t.Errorf("it is %q, %v", f.bytes, err)
	}
}
