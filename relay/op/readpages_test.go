package op

import (
	"fmt"
	"testing"

	"colabrelay/shared/contract"
)

func TestAListingOfAnyLengthEnds(t *testing.T) {
	for pages, truncated := range map[int]bool{1: false, maxPages: false, maxPages + 1: true} {
		read := 0
		got, err := readPages(maxPages, func(after string) (contract.Files, error) {
			if read > 0 && after != fmt.Sprint(read) {
				t.Fatalf("page %d begins after %q", read+1, after)
			}
			read++
			return contract.Files{Files: []contract.File{{Name: fmt.Sprint(read)}}, Truncated: read < pages}, nil
		})
		if err != nil || len(got.Files) != min(pages, maxPages) || read != min(pages, maxPages) || got.Truncated != truncated {
			t.Errorf("%d pages: %d read, truncated %v, %v", pages, len(got.Files), got.Truncated, err)
		}
	}
}
