// ioredis. Usage: ioredis_client.js PORT
const assert = require("node:assert");
const Redis = require("ioredis");

async function main() {
  const redis = new Redis(Number(process.argv[2]));
  await redis.flushall();
  assert.strictEqual(await redis.set("a", "1", "EX", 100), "OK");
  assert.strictEqual(await redis.incr("a"), 2);
  await redis.hset("h", { x: 1, y: 2 });
  assert.deepStrictEqual(await redis.hgetall("h"), { x: "1", y: "2" });
  const results = await redis.pipeline().get("a").zadd("z", 1, "m").zrange("z", 0, -1).exec();
  assert.deepStrictEqual(results.map(([, reply]) => reply), ["2", 1, ["m"]]);
  assert.deepStrictEqual(await redis.multi().set("t", "1").get("t").exec(), [[null, "OK"], [null, "1"]]);
  const listener = redis.duplicate();
  const heard = new Promise((resolve) => listener.on("message", (_, message) => resolve(message)));
  await listener.subscribe("channel");
  assert.strictEqual(await redis.publish("channel", "hello"), 1);
  assert.strictEqual(await heard, "hello");
  await assert.rejects(redis.lpush("a", "x"), /WRONGTYPE/);
  const keys = [];
  for await (const found of redis.scanStream()) keys.push(...found);
  assert.deepStrictEqual(keys.sort(), ["a", "h", "t", "z"]);
  listener.disconnect();
  redis.disconnect();
  console.log("ioredis: good");
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
