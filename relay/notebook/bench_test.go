package notebook

import (
	"fmt"
	"strings"
	"testing"
)

// many returns a notebook with short cells.
func many(cells int) []byte {
	var b strings.Builder
	b.WriteString("{\n \"cells\": [")
	for i := range cells {
		if i > 0 {
			b.WriteString(",")
		}
		fmt.Fprintf(&b, "\n  {\n   \"cell_type\": \"code\",\n   \"execution_count\": null,\n   \"id\": \"cell-%d\",\n   \"metadata\": {},\n   \"outputs\": [],\n   \"source\": [\n    \"x = %d\\n\",\n    \"print(x)\"\n   ]\n  }", i, i)
	}
	b.WriteString("\n ],\n \"metadata\": {},\n \"nbformat\": 4,\n \"nbformat_minor\": 5\n}\n")
	return []byte(b.String())
}

func BenchmarkParse(b *testing.B) {
	for name, text := range map[string][]byte{"1000 cells": many(1000), "50 MB": large(50 << 20)} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Parse(text); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkSetOutputs(b *testing.B) {
	for name, text := range map[string][]byte{"1000 cells": many(1000), "50 MB": large(50 << 20)} {
		b.Run(name, func(b *testing.B) {
			d, err := Parse(text)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if err := d.SetOutputs(i%d.Len(), i, []map[string]any{{"output_type": "stream", "name": "stdout", "text": []string{"a"}}}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
