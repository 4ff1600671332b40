package render

import (
	"image"
	"image/draw"
)

// resize scales img down so that its long edge has at most the given pixels. Each new pixel is
// the mean of the area that it covers. It reads the picture row by row: beside the new picture
// it takes memory for a few rows, where scalers with a kernel take 32 bytes for each pixel of
// the new width and the old height.
func resize(img image.Image, edge int) image.Image {
	if long(img) <= edge {
		return img
	}
	b := img.Bounds()
	w, h := max(1, b.Dx()*edge/long(img)), max(1, b.Dy()*edge/long(img))
	out := image.NewRGBA(image.Rect(0, 0, w, h))
	row := image.NewRGBA(image.Rect(0, 0, b.Dx(), 1))
	columns := areas(b.Dx(), w)
	narrow, sum := make([]float32, 4*w), make([]float32, 4*w)
	lines, line := areas(b.Dy(), h), 0
	for y := range h {
		clear(sum)
		for at := lines[y].first; at < lines[y].end; at++ {
			if at >= line { // else the new row before this one ended in it, and narrow has it
				draw.Draw(row, row.Bounds(), img, image.Pt(b.Min.X, b.Min.Y+at), draw.Src)
				meanOf(narrow, row.Pix, columns)
				line = at + 1
			}
			weight := lines[y].weight(at)
			for i, v := range narrow {
				sum[i] += weight * v
			}
		}
		pix := out.Pix[y*out.Stride:]
		for i, v := range sum {
			pix[i] = uint8(v + 0.5)
		}
	}
	return out
}

// meanOf sets each pixel of narrow to the mean of its area in a row.
func meanOf(narrow []float32, row []uint8, columns []area) {
	for x, a := range columns {
		var r, g, b, alpha float32
		for at := a.first; at < a.end; at++ {
			weight, p := a.weight(at), row[4*at:4*at+4]
			r += weight * float32(p[0])
			g += weight * float32(p[1])
			b += weight * float32(p[2])
			alpha += weight * float32(p[3])
		}
		copy(narrow[4*x:], []float32{r, g, b, alpha})
	}
}

// area is what of a line one of fewer pixels covers: from first to before end, those two in
// part.
type area struct {
	first, end     int
	ofFirst, other float32 // weights
	ofLast         float32
}

func (a *area) weight(at int) float32 {
	switch at {
	case a.first:
		return a.ofFirst
	case a.end - 1:
		return a.ofLast
	}
	return a.other
}

// areas returns what of a line of so many pixels each of fewer ones covers.
func areas(pixels, fewer int) []area {
	all := make([]area, fewer)
	for i := range all {
		from, to := i*pixels, (i+1)*pixels // in parts of which a pixel has fewer
		first, end := from/fewer, (to+fewer-1)/fewer
		part := func(at int) float32 {
			covered := min(to, (at+1)*fewer) - max(from, at*fewer)
			return float32(covered) / float32(pixels)
		}
		all[i] = area{first: first, end: end, ofFirst: part(first), ofLast: part(end - 1), other: float32(fewer) / float32(pixels)}
	}
	return all
}
