package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"colabrelay/shared/filename"
)

// addJSONFlag adds --json to a command that prints data.
func addJSONFlag(cmd *cobra.Command, on *bool) {
	cmd.Flags().BoolVar(on, "json", false, "print one JSON document")
}

// printJSON writes v as one JSON document. It writes invisible characters as escapes: they
// may come from a VM, and a terminal or an editor may obey them.
func printJSON(out io.Writer, v any) error {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("write JSON: %v", err)
	}
	_, err := out.Write(escapeInvisible(text.Bytes()))
	return err
}

// escapeInvisible writes the invisible characters of a JSON document as \u escapes.
func escapeInvisible(text []byte) []byte {
	var safe bytes.Buffer
	for len(text) > 0 {
		r, n := utf8.DecodeRune(text)
		switch {
		case r == '\n' || filename.Visible(r) || unicode.IsSpace(r) && r < 0x80:
			safe.Write(text[:n])
		case r > 0xffff:
			high, low := (r-0x10000)>>10+0xd800, (r-0x10000)&0x3ff+0xdc00
			fmt.Fprintf(&safe, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&safe, `\u%04x`, r)
		}
		text = text[n:]
	}
	return safe.Bytes()
}
