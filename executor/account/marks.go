package account

import (
	"crypto/sha256"
	"encoding/binary"
)

// marks are two supplementary group ids that no other programs have: one for the kernel
// and what it starts, one for the executor's scripts. A process can't leave its groups, so
// they tell which processes are the kernel's, whatever these do: fork, setsid, change
// their name or environment, or outlive their executor.
type marks struct{ kernel, script int }

const (
	kernelMark = iota
	scriptMark
)

// For returns u for one executor, known by the place of its state folder. What it starts is marked.
func (u *User) For(place string) *User {
	if u == nil {
		return nil
	}
	marked := *u
	sum := sha256.Sum256([]byte(place))
	first := firstMark(binary.BigEndian.Uint32(sum[:]))
	marked.marks = marks{first, first + 1}
	return &marked
}

// mark is a group id, or 0 before For.
func (u *User) mark(which int) int {
	switch {
	case u == nil:
		return 0
	case which == kernelMark:
		return u.marks.kernel
	}
	return u.marks.script
}

// Where marks lie on a machine that has all group ids: above those of any distribution,
// container tool or directory service by default, and below those that some programs take
// for negative numbers.
const (
	lowestMark = 1 << 30
	markPairs  = 1 << 28
)

// firstMark is the first of two group ids, chosen by a random number. In a container whose
// groups are few, they are near the upper end.
func firstMark(random uint32) int {
	if highest := highestGroup(); highest < lowestMark+2*markPairs {
		pairs := min(highest/4, 1000)
		return highest - 2 - 2*(1+int(random)%pairs) // the uppermost may be nogroup
	}
	return lowestMark + 2*int(random%markPairs)
}
