/** What each task answers. The fixtures' weights are random: shapes, sums and sameness are tested, not sense. */

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Edge, fixture, type Json, start } from "./edge.ts";

function serve(name: string, change?: (manifest: Json) => void, config?: (config: Json) => void): { current: Edge } {
  const holder = {} as { current: Edge };
  beforeAll(async () => {
    const artifact = fixture(name);
    change?.(artifact.manifest);
    holder.current = await start({ shards: { world: { artifact } }, ...(config && { change: config }) });
  });
  afterAll(() => holder.current.miniflare.dispose());
  return holder;
}

const sum = (values: number[]) => values.reduce((total, value) => total + value, 0);

describe("text-classification", () => {
  const edge = serve("classification");

  test("one text: the best label, its score and all scores, which sum to one", async () => {
    const { status, body } = await edge.current.infer({ text: "where is my parcel" });
    expect(status).toBe(200);
    expect(Object.keys(body)).toEqual(["model", "artifact", "shard", "result"]);
    const { label, score, scores, tokens, truncated } = body.result;
    expect(Object.keys(scores)).toEqual(["refund", "delivery", "other"]);
    expect(sum(Object.values(scores))).toBeCloseTo(1, 5);
    expect(score).toBe(Math.max(...(Object.values(scores) as number[])));
    expect(scores[label]).toBe(score);
    expect([tokens, truncated]).toEqual([6, false]);
  });

  test("many texts: in order, each as if it were alone", async () => {
    const texts = ["refund please", "where is my parcel", "machine learning at the edge"];
    const together = (await edge.current.infer({ texts })).body;
    const alone = [];
    for (const text of texts) alone.push((await edge.current.infer({ text })).body.result);
    expect(together).toMatchObject({ model: "support-intent", shard: "world" });
    expect(together.results).toEqual(alone);
    expect((await edge.current.infer({ texts: [texts[0]] })).body.results).toEqual([alone[0]]);
  });

  test("what follows the last token that fits makes no difference", async () => {
    const short = (await edge.current.infer({ text: "hello ".repeat(14).trim() })).body.result;
    const long = (await edge.current.infer({ text: "hello ".repeat(2000) })).body.result;
    expect([short.tokens, short.truncated]).toEqual([16, false]);
    expect([long.tokens, long.truncated]).toEqual([16, true]);
    expect(long.scores).toEqual(short.scores);
  });

  test("a text of which the tokenizer keeps nothing still has an answer", async () => {
    const { status, body } = await edge.current.infer({ text: "\u0001\u0002" });
    expect([status, body.result.tokens]).toEqual([200, 2]);
  });
});

describe("text-classification with multi_label", () => {
  const edge = serve("multi-label", ({ task }) => {
    task.labels = ["10", "__proto__", "other"];
  });

  test("the labels at or above the threshold, best first; every label has its own score", async () => {
    for (const text of ["hate and insult", "thanks my friendly friend", "sun", "broken lamp"]) {
      const { labels, scores } = (await edge.current.infer({ text })).body.result as {
        labels: string[];
        scores: Record<string, number>;
      };
      const entries = Object.entries(scores);
      expect(entries.map(([label]) => label).sort()).toEqual(["10", "__proto__", "other"]);
      const expected = entries.filter(([, score]) => score >= 0.5).sort((a, b) => b[1] - a[1]);
      expect(labels).toEqual(expected.map(([label]) => label));
    }
  });
});

describe("display text of labels", () => {
  const one = serve("classification", undefined, (config) => {
    config.display = { refund: "Refund request", delivery: "Où est mon colis ?" };
  });
  const many = serve("multi-label", undefined, (config) => {
    config.display = { refund: "Refund request", other: "Something else" };
  });

  test("beside the label; a label without one stands for itself", async () => {
    const shown: Record<string, string> = { refund: "Refund request", delivery: "Où est mon colis ?", other: "other" };
    const seen = new Set<string>();
    for (const text of ["refund please", "where is my parcel", "machine learning", "hello", "broken lamp", "sun"]) {
      const { result } = (await one.current.infer({ text })).body;
      expect(Object.keys(result)).toEqual(["label", "display", "score", "scores", "tokens", "truncated"]);
      expect(result.display).toBe(shown[result.label]);
      seen.add(result.label);
    }
    expect(seen.size).toBeGreaterThan(0);
  });

  test("of several labels in their order", async () => {
    for (const text of ["hate and insult", "thanks my friendly friend", "broken lamp"]) {
      const { result } = (await many.current.infer({ text })).body;
      expect(result.display).toHaveLength(result.labels.length);
      const shown: Record<string, string> = { refund: "Refund request", other: "Something else" };
      expect(result.display).toEqual(result.labels.map((label: string) => shown[label] ?? label));
    }
  });
});

describe("embedding", () => {
  const unit = serve("embedding");
  const raw = serve("raw-embedding");

  test("has length one where the task normalises, and the same direction", async () => {
    const text = "small neural network";
    const one = (await unit.current.infer({ text })).body.result;
    const other = (await raw.current.infer({ text })).body.result;
    const length = Math.hypot(...other.embedding);
    expect(one.embedding).toHaveLength(24);
    expect(Math.hypot(...one.embedding)).toBeCloseTo(1, 5);
    expect(length).not.toBeCloseTo(1, 2);
    for (const [i, value] of one.embedding.entries()) expect(value).toBeCloseTo(other.embedding[i] / length, 5);
    expect([one.tokens, one.truncated]).toEqual([5, false]);
  });
});

describe("keyword-extraction", () => {
  const edge = serve("keywords");
  const keywords = async (request: Json): Promise<string[]> => {
    const { status, body } = await edge.current.infer(request);
    expect(status, JSON.stringify(body)).toBe(200);
    const found = body.result.keywords as { text: string; score: number }[];
    expect(found.map(({ score }) => score)).toEqual(found.map(({ score }) => score).toSorted((a, b) => b - a));
    return found.map(({ text }) => text);
  };

  test("phrases of the text, best first, none with a stop word at its ends", async () => {
    const text = "The machine learning models run at the edge of a small network, and the train to the city is late.";
    const found = await keywords({ text });
    expect(found).toHaveLength(5);
    for (const phrase of found) {
      expect(text).toContain(phrase);
      expect(phrase).not.toMatch(/^(?:the|at|of|a|and|to|is)\b|\b(?:the|at|of|a|and|to|is)$/i);
      expect(phrase.split(" ").length).toBeLessThanOrEqual(3);
    }
    expect(await keywords({ text })).toEqual(found);
  });

  test("top_k and diversity of the request win over the task's", async () => {
    const text = "machine learning, machine learning models, neural network, cheap train ticket, good weather";
    expect(await keywords({ text, top_k: 2 })).toHaveLength(2);
    expect(await keywords({ text, top_k: 50 })).not.toHaveLength(5);
    expect(await keywords({ text, diversity: 0 })).not.toEqual(await keywords({ text, diversity: 1 }));
  });

  test.each([
    ["top_k", 0],
    ["top_k", 51],
    ["top_k", 1.5],
    ["top_k", "3"],
    ["top_k", null],
    ["diversity", -0.1],
    ["diversity", 1.1],
    ["diversity", "0.5"],
    ["diversity", null],
  ])("%s: %s is refused by name", async (name, value) => {
    const { status, body } = await edge.current.infer({ text: "hello", [name]: value });
    expect([status, body.error.code]).toEqual([400, "invalid_request"]);
    expect(body.error.message).toContain(name);
  });

  test.each([
    ["Chinese", "机器学习模型可以在网络边缘运行。", "机器"],
    ["Japanese", "東京の天気はとても良いです。機械学習を勉強しています。", "東京"],
    ["Thai", "กรุงเทพมหานครเป็นเมืองหลวงของประเทศไทย", "เมืองหลวง"],
  ])("%s, which has no spaces, is segmented in workerd", async (_, text, word) => {
    const found = await keywords({ text, top_k: 50, diversity: 0 });
    expect(found).toContain(word);
    expect(found).not.toContain(text);
  });

  test("a text of stop words and numbers has no keywords", async () => {
    expect(await keywords({ text: "This is the 42 of 3.14, and that is it." })).toEqual([]);
  });
});
